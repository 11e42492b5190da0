package agent

// Types of Temporal application errors that an AgentRun can fail with, stable
// strings. A run that fails with one of them stored nothing: it never became a
// run. Every other end is a RunResult with a Reason.
const (
	// ErrorInvalidRequest: RunRequest.Validate failed, or the budget cannot be
	// enforced for the model.
	ErrorInvalidRequest = "InvalidRequest"
	// ErrorUnknownAgent: no definition of that name and version is served.
	ErrorUnknownAgent = "UnknownAgent"
	// ErrorConversationConflict: the conversation is at another version than
	// the caller expected, or belongs to another user or environment.
	ErrorConversationConflict = "ConversationConflict"
	// ErrorRunConflict: the run ID exists with another request.
	ErrorRunConflict = "RunConflict"
	// ErrorUserErased: the user was erased, or is being erased, so nothing that
	// the user says could be kept.
	ErrorUserErased = "UserErased"
)

// IsRefusal reports whether an error type says that a request cannot become a run.
func IsRefusal(errorType string) bool {
	switch errorType {
	case ErrorInvalidRequest, ErrorUnknownAgent, ErrorConversationConflict, ErrorRunConflict, ErrorUserErased:
		return true
	}
	return false
}

// Types of application errors of the workflows about memory, beside
// ErrorInvalidRequest.
const (
	// ErrorMemoryConflict: the ID was used for another candidate.
	ErrorMemoryConflict = "MemoryConflict"
	// ErrorMemoryMissing: there is no such candidate, or its user was erased.
	ErrorMemoryMissing = "MemoryMissing"
	// ErrorErasureBlocked: what an erasure waits for has lasted too long.
	ErrorErasureBlocked = "ErasureBlocked"
)

// ErrorHandedBack is the type of an activity's error, never of a run's: the
// worker stops and gives the work to another one.
const ErrorHandedBack = "HandedBack"
