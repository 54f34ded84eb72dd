package demo

import (
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
	// Open creates the locks and the handler of all routes.
	Open func(rdb *redis.Client) (*core.Client, http.Handler, error)
	// Demonstrate sends requests to the server at base and prints the results.
	Demonstrate func(ctx context.Context, base string) error
	// Invite returns commands to try by hand. It is printed after an empty line and two spaces.
	Invite func(base string) string
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

	locks, handler, err := p.Open(redis.Client())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	base := baseURL(listener.Addr())
	p.introduce(base, redis)
	err = p.Demonstrate(ctx, base)
	if err == nil && !once {
		p.invite(base, redis)
		select {
		case <-ctx.Done():
			fmt.Println("\nShutting down.")
		case err = <-served: // the listener failed
		}
	}
	if ctx.Err() != nil {
		err = nil // Ctrl-C is the normal end
	}
	return errors.Join(err, shutdown(server, locks))
}

// shutdown lets requests that hold a lock finish, and answers waiting ones with 503.
func shutdown(server *http.Server, locks *core.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
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
			"  REDIS_URL=%s go run ./examples/%s -addr 127.0.0.1:0\n", redis.URL(), p.Name)
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
