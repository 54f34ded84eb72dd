// Package grpc tests the interceptors of docs/guides/delegation.md with gRPC.
package grpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// sendTokens is for connections to the service audience.
func sendTokens(audience string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		tokens, err := core.Delegation(ctx, audience)
		if err != nil {
			return err
		}
		if tokens != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, delegation.Header, tokens)
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	}
}

// takeTokens is for a server that only services call.
func takeTokens(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	tokens := metadata.ValueFromIncomingContext(ctx, delegation.Header)
	return handler(core.WithDelegation(ctx, strings.Join(tokens, ",")), req)
}

// A billing service answers a check of an order under the lock of that order.
type billing struct {
	grpc_health_v1.UnimplementedHealthServer
	locks *core.Client
}

func (b *billing) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	err := core.Do(ctx, b.locks.Lock(r.Service), core.AcquireOptions{}, func(context.Context) error { return nil })
	if errors.Is(err, core.ErrNotAcquired) {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, err
}

// A call enters the lock of its caller, if its connection is to the service that the token is for.
// Others stay out, and the lock is free when the caller has left.
func TestInterceptors(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	locks := newLocks(t, redis, "orders")
	address := serve(t, newLocks(t, redis, "billing"))
	lease, err := locks.Lock("order:42").Acquire(context.Background(), core.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, audience string
		ctx            context.Context
		want           codes.Code
	}{
		{"the caller", "billing", lease.Context(), codes.OK},
		{"the caller again", "billing", lease.Context(), codes.OK},
		{"a token for another service", "shipping", lease.Context(), codes.Aborted},
		{"a stranger", "billing", context.Background(), codes.Aborted},
	} {
		if err := check(t, test.ctx, address, test.audience); status.Code(err) != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := check(t, context.Background(), address, "billing"); err != nil {
		t.Errorf("after all have left: %v", err)
	}
}

// A client without keys makes no call with the context of a lease.
func TestInterceptors_NoKeys(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	locks, err := core.New(redis.Client(t), core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	address := serve(t, newLocks(t, redis, "billing"))
	err = core.Do(context.Background(), locks.Lock("order:42"), core.AcquireOptions{}, func(ctx context.Context) error {
		return check(t, ctx, address, "billing")
	})
	if !errors.Is(err, core.ErrInvalidOptions) {
		t.Errorf("%v, want ErrInvalidOptions", err)
	}
}

// newLocks returns the client of a service.
func newLocks(t *testing.T, redis *redistest.Server, name string) *core.Client {
	t.Helper()
	keys, err := delegation.NewKeys(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(redis.Client(t), core.Options{Delegation: delegation.Service{Keys: keys, Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// serve starts a billing service and returns its address.
func serve(t *testing.T, locks *core.Client) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(takeTokens))
	grpc_health_v1.RegisterHealthServer(server, &billing{locks: locks})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// check asks for the order of the test, over a connection for audience.
func check(t *testing.T, ctx context.Context, address, audience string) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(sendTokens(audience)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "order:42"})
	return err
}
