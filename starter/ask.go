package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// ask puts a question to the person and returns what was typed, in lower case.
// The error is that of an interrupt.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.errOut, question)
	answers := make(chan string, 1)
	go func() {
		// An error is no answer, as an empty line is none.
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return "", &exit{code: exitInterrupted}
	case answer := <-answers:
		return answer, nil
	}
}

func yes(answer string) bool { return answer == "y" || answer == "yes" }

// canAsk reports whether there is a person to answer.
func (a *app) canAsk() bool { return a.inTerminal && !a.json }
