package demo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/embedded"
)

// A Program is an example.
type Program struct {
	Name string // of its directory
	What string // such as "A shop"
	// Open creates the locks and the handler of all routes. It may be nil if Serve is set.
	Open func(rdb *redis.Client) (*core.Client, http.Handler, error)
	// Serve serves on the listener in another way than Open.
	Serve func(listener net.Listener, redis *embedded.Server) (*Server, error)
	// Run is the command that runs the program. Empty: go run ./examples/NAME.
	Run string
	// Work runs beside the server until ctx ends. nil: nothing.
	Work func(ctx context.Context) error
	// Demonstrate sends requests to the server at base and prints the results. nil: there is nothing
	// to see without a visitor.
	Demonstrate func(ctx context.Context, base string) error
	// Invite returns commands to try by hand. It is printed after an empty line and two spaces.
	Invite func(base string) string
}

// A Server serves until it is stopped.
type Server struct {
	Failed <-chan error // receives if it ends before
	// Stop lets requests that hold a lock finish, and answers waiting ones with 503.
	Stop func(ctx context.Context) error
}

// Main runs a program with the process's arguments. It returns on success and exits with code 1
// otherwise.
func Main(p Program) {
	addr := flag.String("addr", "127.0.0.1:8080", "`host:port` to listen on; port 0 takes any free one")
	once := new(bool)
	if p.Demonstrate != nil {
		once = flag.Bool("once", false, "end after the demonstration")
	}
	if err := Parse(p.What, p.command()); err != nil {
		p.fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the program
	if err := p.run(ctx, *addr, *once); err != nil {
		p.fail(err)
	}
}

// Parse parses the flags of a program that takes no arguments. With -help, it prints what the
// program is and its flags, and ends it.
func Parse(what, command string) error {
	help := flag.Bool("help", false, "show this text")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "%s.\n\n  %s [flags]\n\n"+
			"It serves until Ctrl-C or SIGTERM. Redis runs inside the process unless REDIS_URL is set.\n\n", what, command)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *help {
		flag.CommandLine.SetOutput(os.Stdout)
		flag.Usage()
		os.Exit(0)
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flag.Arg(0))
	}
	return nil
}

func (p Program) command() string { return cmp.Or(p.Run, "go run ./examples/"+p.Name) }

func (p Program) fail(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
	os.Exit(1)
}

// run serves until ctx ends, or only during the demonstration.
func (p Program) run(ctx context.Context, addr string, once bool) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; choose another address with -addr", err)
	}
	defer listener.Close()

	redis, err := embedded.FromEnv()
	if err != nil {
		return err
	}
	defer redis.Close()

	server, err := p.serve(listener, redis)
	if err != nil {
		return err
	}

	base := baseURL(listener.Addr())
	p.introduce(base, redis)
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	worked := p.work(working)
	if p.Demonstrate != nil {
		err = p.Demonstrate(ctx, base)
	}
	if err == nil && !once {
		p.invite(base, redis)
		select {
		case <-ctx.Done():
			fmt.Println("\nShutting down.")
		case err = <-server.Failed:
		case err = <-worked:
		}
	}
	stopWork() // before the locks are closed, which waits for those of the work
	if ctx.Err() != nil {
		err = nil // Ctrl-C is the normal end
	}
	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, <-worked, server.Stop(stopping))
}

// work starts the work. It sends its error unless that is the end of ctx, and closes the channel.
func (p Program) work(ctx context.Context) <-chan error {
	worked := make(chan error, 1)
	go func() {
		defer close(worked)
		if p.Work == nil {
			<-ctx.Done()
		} else if err := p.Work(ctx); !errors.Is(err, context.Canceled) {
			worked <- err
		}
	}()
	return worked
}

// serve starts the server of the program.
func (p Program) serve(listener net.Listener, redis *embedded.Server) (*Server, error) {
	if p.Serve != nil {
		return p.Serve(listener, redis)
	}
	locks, handler, err := p.Open(redis.Client())
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return &Server{Failed: served, Stop: func(ctx context.Context) error { return Shutdown(ctx, server, locks) }}, nil
}

// Shutdown stops a server and closes its locks. Requests that hold a lock finish, and waiting ones get
// 503.
func Shutdown(ctx context.Context, server *http.Server, locks *core.Client) error {
	closed := make(chan error, 1) // Shutdown does not wait for registered functions
	server.RegisterOnShutdown(func() { closed <- locks.Close(ctx) })
	return errors.Join(server.Shutdown(ctx), <-closed)
}

// introduce prints where the server and Redis run.
func (p Program) introduce(base string, redis *embedded.Server) {
	where := "at " + redis.URL()
	if redis.Embedded() {
		where = "inside this process"
	}
	fmt.Printf("%s at %s, its locks in Redis %s.\n", p.What, base, where)
}

// invite prints what to try next.
func (p Program) invite(base string, redis *embedded.Server) {
	fmt.Printf("\nTry it by hand, two at the same time:\n\n  %s\n", p.Invite(base))
	if redis.Embedded() {
		fmt.Printf("\nA second process on the same Redis, whose requests and these exclude each other:\n\n"+
			"  REDIS_URL=%s %s -addr 127.0.0.1:0\n", redis.URL(), p.command())
	}
	fmt.Println("\nServing until Ctrl-C.")
}

// baseURL returns the URL of a listener on this machine.
func baseURL(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String()) // a TCP listener's address has both
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
