package telemetry

import (
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger returns a logger that writes one line per entry to out. level is
// debug, info, warn or error; format is json, console, or auto, which is console
// on a terminal and json elsewhere. Close has nothing to do but Sync.
func NewLogger(level, format string, out io.Writer) (*zap.Logger, error) {
	threshold, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey, encoding.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.StringDurationEncoder

	var encoder zapcore.Encoder
	switch {
	case format == "json", format == "auto" && !isTerminal(out):
		encoder = zapcore.NewJSONEncoder(encoding)
	case format == "console", format == "auto":
		encoding.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoding.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(encoding)
	default:
		return nil, fmt.Errorf("log format %q is not one of auto, json, console", format)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), threshold)
	// No stack traces: the error's text says what happened, and a stack may
	// print values.
	return zap.New(core, zap.WithCaller(false), zap.ErrorOutput(zapcore.Lock(os.Stderr))), nil
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
