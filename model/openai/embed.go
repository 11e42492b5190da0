package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/fairlead/fairlead/model"
)

// MaxEmbeddingDimensions is the longest vector: PostgreSQL indexes no longer
// halfvec.
const MaxEmbeddingDimensions = 4000

// Bounds of one request. OpenAI takes 8,192 tokens of a text and 300,000 of all
// texts together, and a token has at least one byte.
const (
	maxEmbedTexts     = 64
	maxEmbedTextBytes = 8_000
	maxEmbedBytes     = 256_000
)

// maxEmbeddingModelBytes keeps a model's name fit for a column and a setting.
const maxEmbeddingModelBytes = 100

// native are the dimensions of OpenAI's own models.
var native = map[string]int{
	"text-embedding-3-small": 1536,
	"text-embedding-3-large": 3072,
	"text-embedding-ada-002": 1536,
}

// EmbedderOptions configure an Embedder. Model is required.
type EmbedderOptions struct {
	// APIKey, BaseURL and HTTPClient are as in Options.
	APIKey     string
	BaseURL    string
	HTTPClient *http.Client
	// Model is the provider's name of the model.
	Model string
	// Dimensions is the length of a vector; zero is the model's own, which is
	// known of OpenAI's models only. Of text-embedding-3 models shorter vectors
	// are asked for; every other model must give this many by itself, because many
	// servers refuse to be asked.
	Dimensions int
}

// Embedder implements model.Embedder over the Embeddings protocol. It is safe
// for concurrent use. One call of Embed is one HTTP request for each 64 texts.
//
// Of a text longer than 8,000 bytes the first 8,000 are embedded, which every
// model of OpenAI takes whatever the language.
type Embedder struct {
	embeddings sdk.EmbeddingService
	model      string
	dimensions int
	shorten    bool
}

var _ model.Embedder = (*Embedder)(nil)

// NewEmbedder returns an Embedder, or an error that names the option at fault.
func NewEmbedder(options EmbedderOptions) (*Embedder, error) {
	name := options.Model
	if name == "" || len(name) > maxEmbeddingModelBytes || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("openai embedding model: must be 1 to %d printable ASCII characters without spaces", maxEmbeddingModelBytes)
	}
	dimensions, own := options.Dimensions, native[name]
	if dimensions == 0 {
		dimensions = own
	}
	switch {
	case dimensions == 0:
		return nil, fmt.Errorf("openai embedding model %s: its dimensions are not known here, say how many it gives", name)
	case dimensions < 1 || dimensions > MaxEmbeddingDimensions:
		return nil, fmt.Errorf("openai embedding model %s: %d dimensions are not 1 to %d", name, dimensions, MaxEmbeddingDimensions)
	case own != 0 && dimensions > own:
		return nil, fmt.Errorf("openai embedding model %s: it gives %d dimensions at most, not %d", name, own, dimensions)
	}
	_, requestOptions, err := connection(options.APIKey, options.BaseURL, options.HTTPClient)
	if err != nil {
		return nil, err
	}
	return &Embedder{
		embeddings: sdk.NewEmbeddingService(requestOptions...),
		model:      name, dimensions: dimensions,
		shorten: strings.HasPrefix(name, "text-embedding-3") && dimensions != own,
	}, nil
}

// Name implements model.Embedder: "openai/" and the model.
func (e *Embedder) Name() string { return "openai/" + e.model }

// Dimensions implements model.Embedder.
func (e *Embedder) Dimensions() int { return e.dimensions }

// Embed implements model.Embedder.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		batch := make([]string, 0, min(len(texts), maxEmbedTexts))
		for size := 0; len(batch) < cap(batch); {
			text := embeddable(texts[len(batch)])
			if size += len(text); size > maxEmbedBytes {
				break
			}
			batch = append(batch, text)
		}
		made, err := e.embed(ctx, batch)
		if err != nil {
			return nil, err
		}
		vectors, texts = append(vectors, made...), texts[len(batch):]
	}
	return vectors, nil
}

// embeddable returns what of a text is sent. Servers refuse empty texts.
func embeddable(text string) string {
	if len(text) > maxEmbedTextBytes {
		end := maxEmbedTextBytes
		for end > maxEmbedTextBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	if strings.TrimSpace(text) == "" {
		return "."
	}
	return text
}

// embed makes one request.
func (e *Embedder) embed(ctx context.Context, batch []string) ([][]float32, error) {
	params := sdk.EmbeddingNewParams{
		Model: e.model, Input: sdk.EmbeddingNewParamsInputUnion{OfArrayOfStrings: batch},
		// Every server knows this one; what comes in the other is read too.
		EncodingFormat: sdk.EmbeddingNewParamsEncodingFormatFloat,
	}
	if e.shorten {
		params.Dimensions = param.NewOpt(int64(e.dimensions))
	}
	var raw *http.Response
	_, err := e.embeddings.New(ctx, params, option.WithResponseBodyInto(&raw))
	if raw != nil {
		defer raw.Body.Close()
	}
	if err := answered(ctx, raw, err); err != nil {
		return nil, err
	}
	vectors, err := e.read(raw, len(batch))
	switch {
	case err == nil:
		return vectors, nil
	case ctx.Err() != nil:
		return nil, contextError(ctx)
	}
	failed := &model.Error{Kind: model.KindMalformed, StatusCode: raw.StatusCode, RequestID: requestID(raw), Err: err}
	var network readError
	var sent *streamError
	switch {
	case errors.As(err, &sent):
		failed.Kind, failed.Err = sent.kind(0), sent.cause()
	case errors.As(err, &network):
		failed.Kind, failed.Err = networkKind(network), safeCause(network)
	}
	return nil, failed
}

func (e *Embedder) read(raw *http.Response, count int) ([][]float32, error) {
	data, err := io.ReadAll(raw.Body)
	if errors.Is(err, errTooLarge) {
		return nil, errTooLarge
	}
	if err != nil {
		return nil, readError{err}
	}
	return readEmbeddings(data, count, e.dimensions)
}
