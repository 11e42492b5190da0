package patient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxTrafficInFlight bounds the payments that are under way at once; a payment
// that finds no place is not made.
const maxTrafficInFlight = 16

// pay makes payments over HTTP at a steady rate until the time is over or ctx
// ends, and waits for the last ones.
func pay(ctx context.Context, address string, perSecond int, duration time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	client := newClient()
	defer client.CloseIdleConnections()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()

	places := make(chan struct{}, maxTrafficInFlight)
	var open sync.WaitGroup
	defer open.Wait()
	for number := 1; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case places <- struct{}{}:
		default:
			continue
		}
		open.Go(func() {
			defer func() { <-places }()
			// A failed payment is the service's to log.
			_, _ = post(context.WithoutCancel(ctx), client, address, payment{
				OrderID: fmt.Sprintf("ord-%06d", number), AmountCents: int64(500 + number%90*25),
			})
		})
	}
}

func newClient() *http.Client {
	return &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{MaxIdleConns: maxTrafficInFlight, MaxIdleConnsPerHost: maxTrafficInFlight, DisableCompression: true},
	}
}

// post makes one payment and returns the HTTP status.
func post(ctx context.Context, client *http.Client, address string, p payment) (int, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("pay: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/pay", bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("pay: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("pay: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxBodyBytes))
	return response.StatusCode, nil
}
