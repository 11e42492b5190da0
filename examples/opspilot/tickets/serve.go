package tickets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// Config says how Serve runs.
type Config struct {
	// Address is a loopback host:port; port 0 means a free one.
	Address string // 127.0.0.1:0
	// Path is the file with the tickets; empty keeps them in memory.
	Path string
	// Faults allows requests to FaultsPath.
	Faults bool
	// OnReady is called with the base URL once the service answers.
	OnReady func(url string)
}

const shutdownGrace = 2 * time.Second

// Serve runs the service until ctx ends and returns nil then. Everything it
// started has ended when it returns.
func Serve(ctx context.Context, config Config) (err error) {
	if config.Address == "" {
		config.Address = "127.0.0.1:0"
	}
	if address, err := netip.ParseAddrPort(config.Address); err != nil || !address.Addr().IsLoopback() {
		return errors.New("serve tickets: the address is not a loopback host:port")
	}
	service, err := Open(config.Path)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", config.Address)
	if err != nil {
		return errors.Join(fmt.Errorf("serve tickets: %w", err), service.Close())
	}
	mux := service.routes()
	if config.Faults {
		mux.HandleFunc("POST "+FaultsPath, service.serveFaults)
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, IdleTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if config.OnReady != nil {
		config.OnReady("http://" + listener.Addr().String())
	}
	select {
	case err = <-served:
		return errors.Join(fmt.Errorf("serve tickets: %w", err), service.Close())
	case <-ctx.Done():
	}
	service.release()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close() // what still hangs is cut off
	}
	<-served
	return service.Close()
}
