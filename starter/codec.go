package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/internal/codec"
	"github.com/fairlead/fairlead/internal/config"
	"github.com/fairlead/fairlead/internal/telemetry"
)

func (a *app) codecServerCommand() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "codec-server",
		Short: "Let operators read histories in the Web UI, until Ctrl-C",
		Long: "Serves Temporal's codec protocol: the Web UI and the Temporal CLI show with it what histories\n" +
			"hold, and a program without the database starts runs through it. Operators have a token of\n" +
			config.Variable("codec.tokens") + " each (NAME:TOKEN, or NAME:TENANT:TOKEN for one tenant's\n" +
			"payloads); a browser logs in with it at /login, and out. What is opened is logged under the\n" +
			"operator's name; what cannot be opened, or not by this operator, is given back as it is.\n" +
			"In the Web UI, enter the address as codec endpoint and switch on \"Include cross-origin\n" +
			"credentials\"; only pages of " + config.Variable("ui_url") + " are answered.",
		Args: noArguments(""),
		RunE: func(c *cobra.Command, _ []string) error { return a.serveCodec(c.Context(), address) },
	}
	c.Flags().StringVar(&address, "listen", "127.0.0.1:8234", "host:port to serve on; other hosts than this one need a proxy with TLS in front")
	return c
}

func (a *app) serveCodec(ctx context.Context, address string) error {
	if err := a.requireContent(); err != nil {
		return err
	}
	if err := a.settings.RequireOperators(); err != nil {
		return &exit{exitUsage, err.Error()}
	}
	log, err := telemetry.NewLogger(a.settings.Log.Level, a.settings.Log.Format, a.errOut)
	if err != nil {
		return err
	}
	keys, err := a.openKeys(ctx, a.settings)
	if err != nil {
		return err
	}
	defer keys.Close()
	handler, err := codec.NewHandler(codec.ServerOptions{Source: keys, Operators: a.settings.Codec.Operators, UIURL: a.settings.UIURL, Log: log})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return usagef("cannot serve: %v; choose another address with --listen", err)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(log),
	}
	a.announceCodec(listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("the codec server cannot go on: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the codec server ended: %w", err)
	}
	a.notice("Stopped.")
	return nil
}

func (a *app) announceCodec(address net.Addr) {
	at := "http://" + address.String()
	a.notice("Codec server at %s for the Web UI at %s. Log in at %s/login.", at, a.settings.UIURL, at)
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		a.notice("Other hosts can reach it and the connection is not encrypted: put a proxy with TLS in front.")
	}
}
