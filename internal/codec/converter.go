package codec

import (
	"context"
	"errors"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// DataConverter returns the converter of a Temporal client and of the workers
// on it. It is safe for concurrent use.
//
// Replay needs nothing of it but the keys: the SDK compares the kinds of
// commands, and never their payloads, which are sealed anew each time.
func DataConverter(source Source) converter.DataConverter {
	// Keys may have to be read from the database while a workflow waits.
	return workflow.DataConverterWithoutDeadlockDetection(newDataConverter(newPayloadCodec(source), false))
}

// dataConverter adds to the SDK's codec converter what a workflow needs to stay
// deterministic.
type dataConverter struct {
	converter.DataConverter
	codec      *payloadCodec
	inWorkflow bool
}

func newDataConverter(codec *payloadCodec, inWorkflow bool) *dataConverter {
	return &dataConverter{converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec), codec, inWorkflow}
}

// WithWorkflowContext implements workflow.ContextAware.
func (c *dataConverter) WithWorkflowContext(workflow.Context) converter.DataConverter {
	return newDataConverter(c.codec, true)
}

// WithContext implements workflow.ContextAware.
func (c *dataConverter) WithContext(ctx context.Context) converter.DataConverter {
	return newDataConverter(c.codec.with(ctx), c.inWorkflow)
}

// FromPayload implements converter.DataConverter.
func (c *dataConverter) FromPayload(payload *common.Payload, valuePtr any) error {
	return c.settle(c.DataConverter.FromPayload(payload, valuePtr), []*common.Payload{payload}, []any{valuePtr})
}

// FromPayloads implements converter.DataConverter. What nobody asks for is not
// opened.
func (c *dataConverter) FromPayloads(payloads *common.Payloads, valuePtrs ...any) error {
	if len(payloads.GetPayloads()) > len(valuePtrs) {
		payloads = &common.Payloads{Payloads: payloads.GetPayloads()[:len(valuePtrs)]}
	}
	return c.settle(c.DataConverter.FromPayloads(payloads, valuePtrs...), payloads.GetPayloads(), valuePtrs)
}

// settle decides what a failure to open means.
func (c *dataConverter) settle(err error, payloads []*common.Payload, valuePtrs []any) error {
	var later *converter.WorkflowTaskFailureError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &later):
		// The SDK drops a signal that cannot be read. Read again at replay, it
		// would make another workflow of it: the task fails instead.
		if c.inWorkflow {
			panic(err)
		}
		return err
	case unreadable(err):
		// Who asks for the payload itself gets it as it is, and can say on the
		// record that it could not be read.
		for i, ptr := range valuePtrs {
			raw, ok := ptr.(*converter.RawValue)
			if !ok || i >= len(payloads) {
				return err
			}
			*raw = converter.NewRawValue(payloads[i])
		}
		return nil
	}
	return err
}
