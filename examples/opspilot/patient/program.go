package patient

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// program is one process that this one has started.
type program struct {
	cmd     *exec.Cmd
	exited  chan struct{}
	exitErr error // written before exited is closed
}

// startProgram starts binary with its output going to output; nil discards it.
// With lifeline the program's standard input is a pipe into which nothing is
// written and which ends when this process does, however that happens.
func startProgram(binary string, arguments []string, output *os.File, lifeline bool) (*program, error) {
	p := &program{cmd: exec.Command(binary, arguments...), exited: make(chan struct{})}
	if output != nil { // a nil *os.File is not a nil io.Writer
		p.cmd.Stdout, p.cmd.Stderr = output, output
	}
	if lifeline {
		if _, err := p.cmd.StdinPipe(); err != nil {
			return nil, err
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// stop ends the process and waits for it: by SIGTERM, and by SIGKILL if that
// takes longer than patience, which is an error. Stopping twice is allowed.
func (p *program) stop(patience time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.exitErr
	case <-timer.C:
		err := p.cmd.Process.Kill()
		<-p.exited
		return errors.Join(fmt.Errorf("it did not end within %s and was killed", patience), err)
	}
}

func (p *program) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
