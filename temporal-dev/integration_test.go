package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/temporal-dev/internal/process"
)

// bundle is one home with ports of its own and the built program.
type bundle struct {
	t       *testing.T
	program string
	home    string
	ports   []int // PostgreSQL, Temporal, Web UI
	// databaseURL is a PostgreSQL that this home shall not run itself.
	databaseURL string
}

// The program takes half a minute to link and minutes to compile, so this test runs only when asked to.
func setup(t *testing.T) *bundle {
	t.Helper()
	if os.Getenv("FAIRLEAD_DEV_INTEGRATION") != "1" {
		t.Skip("set FAIRLEAD_DEV_INTEGRATION=1 to run it; FAIRLEAD_DEV_BINARY=FILE saves the build")
	}
	// Not t.TempDir, which is closed to the unprivileged user that PostgreSQL runs as when the test is root.
	dir, err := os.MkdirTemp("", "fairlead-dev-")
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	b := &bundle{t: t, program: os.Getenv("FAIRLEAD_DEV_BINARY"), home: filepath.Join(dir, "home")}
	b.ports, err = process.FreePorts(3)
	check(t, err)
	t.Cleanup(func() {
		b.run("purge", "--yes")
		check(t, os.RemoveAll(dir))
	})
	if b.program == "" {
		b.program = filepath.Join(dir, "temporal-dev")
		out, err := exec.Command("go", "build", "-o", b.program, ".").CombinedOutput()
		if err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	check(t, os.Mkdir(b.home, 0o755))
	// A private PostgreSQL that root's default home already has saves the download; otherwise this test makes its own.
	if existing := "/var/lib/fairlead-dev/postgres"; exists(filepath.Join(existing, "usr")) {
		check(t, os.Symlink(existing, filepath.Join(b.home, "postgres")))
	}
	return b
}

type result struct {
	code int
	out  string // both streams
	took time.Duration
}

func (b *bundle) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+b.databaseURL, "FAIRLEAD_DEV_HOME="+b.home,
		"FAIRLEAD_DEV_PG_PORT="+strconv.Itoa(b.ports[0]), "FAIRLEAD_DEV_TEMPORAL_PORT="+strconv.Itoa(b.ports[1]),
		"FAIRLEAD_DEV_UI_PORT="+strconv.Itoa(b.ports[2]))
	return cmd
}

func (b *bundle) run(args ...string) result {
	b.t.Helper()
	start := time.Now()
	out, err := b.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	r := result{out: string(out), took: time.Since(start)}
	if exit != nil {
		r.code = exit.ExitCode()
	}
	return r
}

// must runs a command and requires its exit code and a text in what it prints.
func (b *bundle) must(code int, text string, args ...string) result {
	b.t.Helper()
	r := b.run(args...)
	if r.code != code || !strings.Contains(r.out, text) {
		b.t.Fatalf("%v: exit code %d, want %d and %q in:\n%s", args, r.code, code, text, r.out)
	}
	b.t.Logf("%-8s exit code %d after %s", args[0], r.code, r.took.Round(10*time.Millisecond))
	return r
}

var pidPattern = regexp.MustCompile(`(?m)^(PostgreSQL|Temporal) .*PID (\d+)$`)

// processes reads the PIDs of PostgreSQL and the engine from `status`.
func (b *bundle) processes() (postgres, engine process.Identity) {
	b.t.Helper()
	r := b.must(0, "home", "status")
	for _, m := range pidPattern.FindAllStringSubmatch(r.out, -1) {
		pid, err := strconv.Atoi(m[2])
		check(b.t, err)
		id, err := process.Identify(pid)
		check(b.t, err)
		if m[1] == "PostgreSQL" {
			postgres = id
		} else {
			engine = id
		}
	}
	if postgres.PID == 0 || engine.PID == 0 {
		b.t.Fatalf("no PIDs in:\n%s", r.out)
	}
	return postgres, engine
}

func TestIntegration(t *testing.T) {
	b := setup(t)
	step := func(name string, run func(*testing.T)) {
		if !t.Run(name, func(t *testing.T) { outer := b.t; b.t = t; defer func() { b.t = outer }(); run(t) }) {
			t.FailNow() // later steps build on this one
		}
	}
	step("DownBeforeUp", func(t *testing.T) {
		b.must(3, "temporal-dev up", "status")
		b.must(3, "temporal-dev up", "env")
		b.must(0, "nothing runs", "down")
	})
	step("TakenPort", func(t *testing.T) {
		for i, name := range []string{"PG", "TEMPORAL", "UI"} {
			listener, err := net.Listen("tcp", process.Address(b.ports[i]))
			check(t, err)
			r := b.must(1, fmt.Sprintf("port %d", b.ports[i]), "up")
			if !strings.Contains(r.out, "FAIRLEAD_DEV_"+name+"_PORT") {
				t.Errorf("does not say how to choose another port: %s", r.out)
			}
			check(t, listener.Close())
		}
		b.must(3, "", "status")
	})
	step("Up", func(t *testing.T) {
		b.must(0, "http://127.0.0.1:", "up")
		if r := b.must(0, "already up", "up"); r.took > 2*time.Second {
			t.Errorf("took %s when already up", r.took)
		}
		r := b.must(0, "", "env")
		want := fmt.Sprintf("export DATABASE_URL='postgres://postgres@127.0.0.1:%d/fairlead?sslmode=disable'\n"+
			"export TEMPORAL_ADDRESS=127.0.0.1:%d\nexport TEMPORAL_NAMESPACE=default\nexport FAIRLEAD_UI_URL=http://127.0.0.1:%d\n",
			b.ports[0], b.ports[1], b.ports[2])
		if r.out != want {
			t.Errorf("env prints\n%swant\n%s", r.out, want)
		}
		b.exec("CREATE EXTENSION vector; CREATE TABLE kept (v halfvec(3)); INSERT INTO kept VALUES ('[1,2,3]')")
		b.startWorkflow("before")
	})
	step("DataSurvives", func(t *testing.T) {
		// A worker that waits for work must not hold up the end.
		b.poll()
		if r := b.must(0, "PostgreSQL stopped", "down"); r.took > 8*time.Second {
			t.Errorf("took %s", r.took)
		}
		b.must(0, "nothing runs", "down")
		b.must(3, "down", "status")
		b.must(0, "up", "up")
		b.kept()
	})
	step("ChangedPortsAreRefused", func(t *testing.T) {
		b.must(1, "temporal-dev down", "up", "--ui-port", strconv.Itoa(b.ports[2]+1))
	})
	step("EngineKilled", func(t *testing.T) {
		_, engine := b.processes()
		check(t, engine.Signal(syscall.SIGKILL))
		if r := b.must(0, "up\n", "up"); r.took > 10*time.Second {
			t.Errorf("took %s: does it wait for its predecessor?", r.took)
		}
		b.kept()
	})
	step("PostgresKilled", func(t *testing.T) {
		postgres, engine := b.processes()
		check(t, postgres.Signal(syscall.SIGKILL))
		if !engine.WaitGone(t.Context(), 30*time.Second) {
			t.Fatal("the engine goes on without PostgreSQL")
		}
		b.must(0, fmt.Sprintf("PostgreSQL (PID %d) has ended, so the engine stops", postgres.PID), "logs")
		b.must(0, "up\n", "up")
		b.kept()
	})
	step("BothKilledAtOnce", func(t *testing.T) {
		postgres, engine := b.processes()
		check(t, postgres.Signal(syscall.SIGKILL))
		check(t, engine.Signal(syscall.SIGKILL))
		b.must(0, "up\n", "up")
		b.kept()
	})
	step("LostStateFile", func(t *testing.T) {
		before, engine := b.processes()
		check(t, engine.Signal(syscall.SIGKILL))
		check(t, os.Remove(filepath.Join(b.home, "state.json")))
		b.must(0, "up\n", "up")
		if after, _ := b.processes(); after != before {
			t.Errorf("PostgreSQL is %v now, want it adopted as %v", after, before)
		}
	})
	step("LostStateFileWhileUp", func(t *testing.T) {
		_, before := b.processes()
		check(t, os.Remove(filepath.Join(b.home, "state.json")))
		b.must(0, "already up", "up")
		if _, after := b.processes(); after != before {
			t.Errorf("the engine is %v now, want it adopted as %v", after, before)
		}
	})
	step("PostgresOfTheUsersOwn", func(t *testing.T) {
		ports, err := process.FreePorts(3)
		check(t, err)
		other := &bundle{
			t: t, program: b.program, home: b.home + "-other", ports: ports,
			databaseURL: fmt.Sprintf("postgres://postgres:unused@127.0.0.1:%d/fairlead", b.ports[0]),
		}
		r := other.must(1, "another engine works on the same Temporal databases", "up")
		if strings.Contains(r.out, "unused") {
			t.Errorf("shows the password:\n%s", r.out)
		}
		_, engine := b.processes()
		check(t, engine.Signal(syscall.SIGKILL))
		other.must(0, "from DATABASE_URL", "up")
		other.must(0, "yours: temporal-dev does not start or stop it", "status")
		other.must(0, other.databaseURL, "env")
		other.startWorkflow("elsewhere")
		other.must(0, "Temporal and Web UI stopped", "down")
		other.must(0, "data deleted", "purge", "--yes")
		b.must(0, "up\n", "up")
		b.kept()
	})
	step("InterruptedUp", func(t *testing.T) {
		b.must(0, "stopped", "down")
		cmd := b.command("up")
		progress, err := cmd.StderrPipe()
		check(t, err)
		check(t, cmd.Start())
		waitFor(t, progress, "starting the Temporal server")
		check(t, cmd.Process.Signal(syscall.SIGINT))
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("interrupted: %v, want exit code 130", cmd.ProcessState)
		}
		b.must(0, "up\n", "up")
		b.kept()
	})
	step("ConcurrentUps", func(t *testing.T) {
		b.must(0, "stopped", "down")
		var all sync.WaitGroup
		results := make([]result, 3)
		for i := range results {
			all.Go(func() { results[i] = b.run("up") })
		}
		all.Wait()
		already := 0
		for _, r := range results {
			if r.code != 0 {
				t.Errorf("exit code %d: %s", r.code, r.out)
			}
			already += strings.Count(r.out, "already up")
		}
		if already != 2 {
			t.Errorf("%d of 3 found it up already, want 2", already)
		}
	})
	step("ForegroundEndsAll", func(t *testing.T) {
		b.must(0, "stopped", "down")
		cmd := b.command("up", "--foreground")
		progress, err := cmd.StderrPipe()
		check(t, err)
		check(t, cmd.Start())
		waitFor(t, progress, "ready")
		b.kept()
		postgres, _ := b.processes()
		check(t, cmd.Process.Signal(syscall.SIGINT))
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 0 || postgres.Alive() {
			t.Errorf("%v, PostgreSQL alive: %v; want exit code 0 and nothing left", cmd.ProcessState, postgres.Alive())
		}
		b.must(3, "down", "status")
	})
}

// exec runs SQL on the fairlead database.
func (b *bundle) exec(sql string) {
	b.t.Helper()
	b.withDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func (b *bundle) withDatabase(use func(context.Context, *pgx.Conn) error) {
	b.t.Helper()
	ctx := b.t.Context()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/fairlead", b.ports[0]))
	check(b.t, err)
	defer func() { _ = conn.Close(ctx) }()
	check(b.t, use(ctx, conn))
}

// kept checks that the row and the workflow of the first start are still there, and that a new workflow can be started.
func (b *bundle) kept() {
	b.t.Helper()
	b.withDatabase(func(ctx context.Context, conn *pgx.Conn) error {
		var fsync string
		var rows int
		err := conn.QueryRow(ctx, "SELECT current_setting('fsync'), count(*) FROM kept WHERE v = '[1,2,3]'").Scan(&fsync, &rows)
		if err == nil && (fsync != "on" || rows != 1) {
			err = fmt.Errorf("fsync %s, %d rows; want on, 1", fsync, rows)
		}
		return err
	})
	b.withTemporal(func(ctx context.Context, client workflowservice.WorkflowServiceClient) error {
		_, err := client.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: "before"},
		})
		return err
	})
	b.startWorkflow("after-" + strconv.FormatInt(time.Now().UnixNano(), 36))
}

// startWorkflow uses all search attributes, and finds the workflow again by them.
func (b *bundle) startWorkflow(id string) {
	b.t.Helper()
	attributes := map[string]*commonpb.Payload{
		"FairleadStep": {Metadata: map[string][]byte{"encoding": []byte("json/plain"), "type": []byte("Int")}, Data: []byte("7")},
	}
	for _, name := range []string{"Tenant", "User", "Conversation", "Agent", "Environment", "Status", "Reason"} {
		attributes["Fairlead"+name] = &commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte("json/plain"), "type": []byte("Keyword")}, Data: []byte(`"` + id + `"`),
		}
	}
	b.withTemporal(func(ctx context.Context, client workflowservice.WorkflowServiceClient) error {
		_, err := client.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
			Namespace: "default", WorkflowId: id, RequestId: id, WorkflowType: &commonpb.WorkflowType{Name: "none"},
			TaskQueue: &taskqueuepb.TaskQueue{Name: "none"}, SearchAttributes: &commonpb.SearchAttributes{IndexedFields: attributes},
		})
		if err != nil {
			return err
		}
		query := fmt.Sprintf("FairleadStep = 7 AND FairleadTenant = '%s' AND FairleadReason = '%s'", id, id)
		for {
			count, err := client.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: "default", Query: query})
			if err != nil || count.GetCount() == 1 {
				return err
			}
		}
	})
}

// poll asks for work on an empty task queue, as an idle worker does, until the server ends.
func (b *bundle) poll() {
	b.t.Helper()
	conn, err := grpc.NewClient(process.Address(b.ports[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	client := workflowservice.NewWorkflowServiceClient(conn)
	go func() {
		_, _ = client.PollWorkflowTaskQueue(context.Background(), &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: "default", TaskQueue: &taskqueuepb.TaskQueue{Name: "idle"}, Identity: "idle worker",
		})
	}()
	time.Sleep(100 * time.Millisecond) // until the poll has reached the server; a later one only makes the test easier
}

func (b *bundle) withTemporal(use func(context.Context, workflowservice.WorkflowServiceClient) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 15*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(process.Address(b.ports[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(b.t, err)
	defer func() { _ = conn.Close() }()
	check(b.t, use(ctx, workflowservice.NewWorkflowServiceClient(conn)))
}

// waitFor reads until the text appears, then goes on reading in the background so that the writer never blocks.
func waitFor(t *testing.T, from interface{ Read([]byte) (int, error) }, text string) {
	t.Helper()
	var seen bytes.Buffer
	chunk := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := from.Read(chunk)
		seen.Write(chunk[:n])
		if err != nil {
			t.Fatalf("ended before it said %q: %v\n%s", text, err, seen.String())
		}
	}
	go func() {
		for {
			if _, err := from.Read(chunk); err != nil {
				return
			}
		}
	}()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
