package patient

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/examples/opspilot/journal"
	"github.com/fairlead/fairlead/examples/opspilot/services"
)

// restarts is the supervisor's record of restarts by key. The newest line of a
// key is what holds. It is safe for concurrent use.
type restarts struct {
	mu    sync.Mutex
	file  *journal.File
	byKey map[string]services.Restart
}

func openRestarts(path string) (*restarts, error) {
	r := &restarts{byKey: map[string]services.Restart{}}
	file, err := journal.Open(path, func(line []byte) error {
		var restart services.Restart
		if json.Unmarshal(line, &restart) != nil || !services.ValidKey(restart.Key) {
			return errors.New("this is no restart; what was restarted is not known, so look at the file before you remove it")
		}
		r.byKey[restart.Key] = restart
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.file = file
	return r, nil
}

func (r *restarts) find(key string) (services.Restart, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	restart, found := r.byKey[key]
	return restart, found
}

// begun returns the restarts whose end is not recorded, by key.
func (r *restarts) begun() []services.Restart {
	r.mu.Lock()
	defer r.mu.Unlock()
	var begun []services.Restart
	for _, restart := range r.byKey {
		if restart.State == services.RestartBegun {
			begun = append(begun, restart)
		}
	}
	slices.SortFunc(begun, func(a, b services.Restart) int { return strings.Compare(a.Key, b.Key) })
	return begun
}

// record returns when the restart is on the disk.
func (r *restarts) record(restart services.Restart) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.file.Append(restart); err != nil {
		return err
	}
	r.byKey[restart.Key] = restart
	return nil
}

func (r *restarts) close() error { return r.file.Close() }
