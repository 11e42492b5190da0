package openaitest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
)

type object = map[string]any

// encode writes JSON without escaping what HTML would need, as OpenAI does.
func encode(v any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // only maps, strings and numbers come here
	}
	return bytes.TrimSpace(buffer.Bytes())
}

func (r Reply) finish() string {
	switch {
	case r.Finish != "":
		return r.Finish
	case len(r.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (u Usage) wire() object {
	return object{
		"prompt_tokens": u.Prompt, "completion_tokens": u.Completion, "total_tokens": u.Prompt + u.Completion,
		"prompt_tokens_details": object{"cached_tokens": u.Cached, "audio_tokens": 0},
	}
}

// whole is the body of a response that is not streamed.
func (r Reply) whole() object {
	message := object{"role": "assistant", "content": r.Text, "refusal": nil}
	if r.Text == "" {
		message["content"] = nil
	}
	if r.Refusal != "" {
		message["refusal"] = r.Refusal
	}
	var calls []object
	for _, call := range r.Calls {
		calls = append(calls, object{
			"id": call.ID, "type": "function",
			"function": object{"name": call.Name, "arguments": call.Arguments},
		})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	body := object{
		"id": "chatcmpl-fake", "object": "chat.completion", "created": 1700000000, "model": r.Model,
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": r.finish()}},
	}
	if r.Usage != nil {
		body["usage"] = r.Usage.wire()
	}
	return body
}

// chunks are the data of the events of a streamed response, without [DONE].
func (r Reply) chunks() []string {
	var chunks []string
	chunk := func(choices []object, usage any) {
		body := object{
			"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1700000000, "model": r.Model,
			"choices": choices, "usage": usage,
		}
		chunks = append(chunks, string(encode(body)))
	}
	delta := func(delta object) {
		chunk([]object{{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": nil}}, nil)
	}

	delta(object{"role": "assistant", "content": "", "refusal": nil})
	for _, piece := range r.split(r.Text) {
		delta(object{"content": piece})
	}
	for _, piece := range r.split(r.Refusal) {
		delta(object{"refusal": piece})
	}
	for i, call := range r.Calls {
		// The first piece names the call, the others carry the arguments only.
		delta(object{"tool_calls": []object{{
			"index": i, "id": call.ID, "type": "function",
			"function": object{"name": call.Name, "arguments": ""},
		}}})
		for _, piece := range r.split(call.Arguments) {
			delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": piece}}}})
		}
	}
	chunk([]object{{"index": 0, "delta": object{}, "logprobs": nil, "finish_reason": r.finish()}}, nil)
	if r.Usage != nil {
		chunk([]object{}, r.Usage.wire())
	}
	return chunks
}

func (r Reply) split(text string) []string {
	size := r.ChunkRunes
	if size <= 0 {
		size = 8
	}
	var pieces []string
	for runes := []rune(text); len(runes) > 0; {
		n := min(size, len(runes))
		pieces = append(pieces, string(runes[:n]))
		runes = runes[n:]
	}
	return pieces
}

// embeddings is the body of an answer with embeddings.
func (r Reply) embeddings(packed bool) object {
	order := r.Order
	if order == nil {
		for i := range r.Vectors {
			order = append(order, i)
		}
	}
	data := []object{}
	for _, i := range order {
		item := object{"object": "embedding", "index": i, "embedding": r.Vectors[i]}
		if packed || r.Base64 {
			item["embedding"] = pack(r.Vectors[i])
		}
		if r.NoIndex {
			delete(item, "index")
		}
		data = append(data, item)
	}
	body := object{"object": "list", "model": r.Model, "data": data}
	if r.Usage != nil {
		body["usage"] = object{"prompt_tokens": r.Usage.Prompt, "total_tokens": r.Usage.Prompt}
	}
	return body
}

// pack is the encoding_format base64: 32-bit floats, little end first.
func pack(vector []float64) string {
	var packed []byte
	for _, x := range vector {
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(float32(x)))
	}
	return base64.StdEncoding.EncodeToString(packed)
}
