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
	// Demonstrate sends requests to the server at base and prints the results.
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
	once := flag.Bool("once", false, "end after the demonstration")
	flag.Parse()
	if flag.NArg() > 0 {
		p.fail(fmt.Errorf("unexpected argument %q; see -help", flag.Arg(0)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the program
	if err := p.run(ctx, *addr, *once); err != nil {
		p.fail(err)
	}
}

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
	err = p.Demonstrate(ctx, base)
	if err == nil && !once {
		p.invite(base, redis)
		select {
		case <-ctx.Done():
			fmt.Println("\nShutting down.")
		case err = <-server.Failed:
		}
	}
	if ctx.Err() != nil {
		err = nil // Ctrl-C is the normal end
	}
	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Stop(stopping))
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
	return &Server{Failed: served, Stop: func(ctx context.Context) error { return shutdown(ctx, server, locks) }}, nil
}

func shutdown(ctx context.Context, server *http.Server, locks *core.Client) error {
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
			"  REDIS_URL=%s %s -addr 127.0.0.1:0\n", redis.URL(), cmp.Or(p.Run, "go run ./examples/"+p.Name))
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
