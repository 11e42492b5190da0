package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Account is the system user that PostgreSQL's programs run as.
type Account struct {
	Name     string
	uid, gid int
	// drop is set when this process is root, as whom PostgreSQL refuses to run.
	drop bool
}

// UnprivilegedAccount is the current user. When that is root, it is the owner of the data directory, which PostgreSQL insists
// on; for a new one the user `postgres` where it exists, else `nobody`.
func UnprivilegedAccount(dataDir string) (Account, error) {
	if os.Geteuid() != 0 {
		return Account{Name: "uid " + strconv.Itoa(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if info, err := os.Stat(dataDir); err == nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
			return Account{Name: fmt.Sprintf("uid %d", owner.Uid), uid: int(owner.Uid), gid: int(owner.Gid), drop: true}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return Account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return Account{Name: "user " + name, uid: uid, gid: gid, drop: true}, nil
	}
	return Account{}, errors.New("PostgreSQL refuses to run as root, and neither user `postgres` nor `nobody` exists: run temporal-dev as an ordinary user")
}

// run makes a command run as the account, in a directory that every user may enter.
func (a Account) run(cmd *exec.Cmd) {
	cmd.Dir = "/"
	// PG* variables of the caller's shell are meant for clients and would change where the server looks.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

func (a Account) own(dir string) error {
	if !a.drop {
		return nil
	}
	if err := os.Chown(dir, a.uid, a.gid); err != nil {
		return fmt.Errorf("give the data directory to %s: %w", a.Name, err)
	}
	return nil
}

// CanUse tells early, and in words, when the account cannot reach the programs or the place of the data.
func (a Account) CanUse(ctx context.Context, i Installation, dataDir string) error {
	cmd := exec.CommandContext(ctx, i.program("postgres"), "--version")
	a.run(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot run %s (%w %s): every directory above it must be open to that user, so choose another --home",
			a.Name, i.program("postgres"), err, out)
	}
	if !a.drop {
		return nil
	}
	parent := filepath.Dir(dataDir)
	look := exec.CommandContext(ctx, "test", "-x", parent)
	a.run(look)
	if err := look.Run(); err != nil {
		return fmt.Errorf("%s may not enter %s, where PostgreSQL's data is to lie: every directory above it must be open to that user, so choose another --home", a.Name, parent)
	}
	return nil
}
