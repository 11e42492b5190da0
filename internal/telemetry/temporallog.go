package telemetry

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
)

// withheld stands for a value that might be content.
const withheld = "(withheld)"

// loggable are the keys of the Temporal SDK, and of workflow code that logs
// through it, whose values are identifiers, names or texts of errors. Everything
// else is withheld unless it is a number, a truth value or a time, so that a key
// that a later SDK adds, such as its Result and Input, cannot leak content.
var loggable = map[string]bool{
	"ActivityID": true, "ActivityRunID": true, "ActivityType": true, "BuildID": true, "ChildWorkflowID": true,
	"CommandType": true, "EventType": true, "Identity": true, "LocalActivityID": true, "LocalActivityType": true,
	"Namespace": true, "QueryType": true, "RunID": true, "SignalName": true, "TaskQueue": true, "TimerID": true,
	"UpdateID": true, "UpdateName": true, "WorkerID": true, "WorkerType": true, "WorkflowID": true, "WorkflowType": true,
	"Error": true, "error": true, "PanicStack": true, "StackTrace": true,
}

// TemporalLogger adapts a zap logger to the Temporal SDK. It prints identifiers,
// numbers and the text of errors; never payloads, results or panic values.
//
// Errors that reach the SDK from fairlead are free of content by their own
// contracts (model.Error, tool.Error, db.Error).
func TemporalLogger(logger *zap.Logger) log.Logger {
	return temporalLogger{logger.Named("temporal")}
}

type temporalLogger struct{ zap *zap.Logger }

// Debug implements log.Logger.
func (l temporalLogger) Debug(msg string, keyvals ...any) {
	if entry := l.zap.Check(zap.DebugLevel, msg); entry != nil {
		entry.Write(fields(keyvals)...)
	}
}

// Info implements log.Logger.
func (l temporalLogger) Info(msg string, keyvals ...any) {
	if entry := l.zap.Check(zap.InfoLevel, msg); entry != nil {
		entry.Write(fields(keyvals)...)
	}
}

// Warn implements log.Logger. A poll that failed for want of a connection is
// said at debug level: each poller says it, and readiness says it once for all.
func (l temporalLogger) Warn(msg string, keyvals ...any) {
	if msg == pollFailed && connectionLost(keyvals) {
		l.Debug(msg, keyvals...)
		return
	}
	if entry := l.zap.Check(zap.WarnLevel, msg); entry != nil {
		entry.Write(fields(keyvals)...)
	}
}

// Error implements log.Logger.
func (l temporalLogger) Error(msg string, keyvals ...any) {
	if entry := l.zap.Check(zap.ErrorLevel, msg); entry != nil {
		entry.Write(fields(keyvals)...)
	}
}

// With implements log.WithLogger.
func (l temporalLogger) With(keyvals ...any) log.Logger {
	return temporalLogger{l.zap.With(fields(keyvals)...)}
}

// pollFailed is the SDK's message.
const pollFailed = "Failed to poll for task."

func connectionLost(keyvals []any) bool {
	for _, value := range keyvals {
		var unavailable *serviceerror.Unavailable
		if err, ok := value.(error); ok && errors.As(err, &unavailable) {
			return true
		}
	}
	return false
}

func fields(keyvals []any) []zap.Field {
	list := make([]zap.Field, 0, (len(keyvals)+1)/2)
	for i := 0; i < len(keyvals); i += 2 {
		key, ok := keyvals[i].(string)
		if !ok || i+1 == len(keyvals) {
			list = append(list, zap.String("malformed_field", withheld))
			continue
		}
		list = append(list, field(key, keyvals[i+1]))
	}
	return list
}

func field(key string, value any) zap.Field {
	switch v := value.(type) {
	case nil:
		return zap.Skip()
	case time.Duration, time.Time, bool:
		return zap.Any(key, v)
	}
	switch reflect.TypeOf(value).Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		// Enumerations print their name, which is code and not content.
		return zap.Any(key, value)
	}
	if !loggable[key] {
		return zap.String(key, withheld)
	}
	switch v := value.(type) {
	case string:
		return zap.String(key, v)
	case error:
		return zap.String(key, v.Error())
	case fmt.Stringer:
		return zap.Stringer(key, v)
	}
	return zap.String(key, withheld)
}
