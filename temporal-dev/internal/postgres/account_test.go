package postgres

import (
	"os"
	"testing"
)

func TestUnprivilegedAccount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		if a, err := UnprivilegedAccount(dir); err != nil || a.drop || a.uid != os.Geteuid() {
			t.Errorf("got %+v, %v; want the current user", a, err)
		}
		return
	}
	if a, err := UnprivilegedAccount(dir); err != nil || !a.drop || a.uid == 0 {
		t.Errorf("got %+v, %v; want an unprivileged user", a, err)
	}
	// Data of a user who is not the one that would be picked now, say because `postgres` was added later.
	if err := os.Chown(dir, 12345, 12346); err != nil {
		t.Fatal(err)
	}
	if a, err := UnprivilegedAccount(dir); err != nil || a.uid != 12345 || a.gid != 12346 || !a.drop {
		t.Errorf("got %+v, %v; want the owner of the data", a, err)
	}
}
