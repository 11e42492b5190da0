// Package approval is the person's side of a write (WRITE-1, WRITE-2, WRITE-5) and
// of a proposed memory (LTM-3): it shows what waits for a decision, mints the token
// that carries one, and lets an operator settle a write whose outcome is unknown. Workers use its
// Verifier, approvers' programs its Office; nothing else needs it.
//
// The package imports the store, the words of package agent and the policies,
// and never the Temporal SDK: what sends a signal is handed in as a Signaler.
//
// # Keys
//
// Approvers' programs hold the private Key, workers hold public keys only, so a
// worker that was taken over cannot confirm its own writes. Both are Ed25519
// keys in standard base64 with padding (RFC 4648, section 4): the 32-byte seed
// and the 32-byte public key. Workers may trust several, which is how a key is
// changed: add the new public key, change the private key, remove the old one.
//
// # Wire format of a token
//
// A token is a JWT (RFC 7519) in compact form, at most agent.MaxTokenBytes long.
// Its header has exactly these fields:
//
//	alg  "EdDSA" (RFC 8037), nothing else is accepted
//	typ  "fairlead-approval+jwt"
//	kid  the first 16 hexadecimal digits of the SHA-256 of the public key
//
// Its claims are exactly these, each present once; all but iat, exp and revision
// are strings:
//
//	iss               "fairlead"
//	sub               the approver
//	jti               the token's ID: the same ID is used once
//	iat, exp          seconds since 1970 UTC; exp is at most MaxTTL after iat
//	decision          "approve" or "decline"
//	tenant            the tenant that owns the run
//	run_id            the run
//	call_id           the tool call, "<step>.<index>"
//	revision          which plan of the call, from 1
//	tool              the tool's name
//	tool_version      its version
//	arguments_hash    SHA-256 in hex of the canonical arguments (RFC 8785)
//	resource_version  the resource's version when the plan was made, may be empty
//	plan_hash         see PlanHash; it covers resource, arguments and summary
//	nonce             the plan's nonce
//
// A token about a proposed memory has the same claims: run_id is the candidate,
// call_id "memory", tool "memory_write", tool_version and resource_version are the
// memory policy's version and digest, arguments_hash is the keyed hash of the
// normalized value, and plan_hash is MemoryHash.
//
// There is no leeway for exp; iat may be a minute ahead of the reader's clock.
// A token is a decision about one plan by one person, and no credential: who
// sends it does not matter, and it opens nothing else.
package approval
