package detect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPOL3FailingDetectorCounts(t *testing.T) {
	t.Parallel()
	failing := rule{"broken", func(*text, func(Category, string)) { panic("my password is hunter2") }}
	half := rule{"half", func(_ *text, add func(Category, string)) {
		add(Health, "half/first")
		panic("then it broke")
	}}
	d := &Detector{rules: []rule{failing, half, numbers}}
	// What the others find is kept, and the panic's text, which may be content, is not.
	require.Equal(t, []Finding{
		{Failed, "broken"}, {Failed, "half"}, {Health, "half/first"}, {PaymentCard, "card/luhn"},
	}, d.Find("4111 1111 1111 1111"))
}
