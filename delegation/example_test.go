package delegation_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/reqlock/reqlock/delegation"
)

// newSecret stands in for a secret that both services read from where they keep their secrets.
func newSecret() []byte {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	return secret
}

// One service signs what it holds. The service that the token is for finds out what that was.
func ExampleKeys() {
	keys, err := delegation.NewKeys(newSecret())
	if err != nil {
		log.Fatal(err)
	}
	token, err := keys.Sign(delegation.Grant{
		Lock:     delegation.LockIDOf("order:42"),
		Kind:     "lock",
		Owner:    "orders-1.4711.abcdefgh:12",
		Expires:  time.Now().Add(30 * time.Second),
		Audience: "billing",
	})
	if err != nil {
		log.Fatal(err)
	}
	grant, err := keys.Verify(token, "billing", time.Now())
	fmt.Println(grant.Lock == delegation.LockIDOf("order:42"), grant.Owner, err)
	_, err = keys.Verify(token, "shipping", time.Now())
	fmt.Println(errors.Is(err, delegation.ErrAudience))
	// Output:
	// true orders-1.4711.abcdefgh:12 <nil>
	// true
}

// The new secret signs. Tokens that the old one has signed are good until the old one is left out.
func ExampleNewKeys_rotation() {
	before, after := newSecret(), newSecret()
	old, err := delegation.NewKeys(before)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := delegation.NewKeys(after, before)
	if err != nil {
		log.Fatal(err)
	}
	token, err := old.Sign(delegation.Grant{Kind: "lock", Owner: "o", Expires: time.Now().Add(time.Minute), Audience: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = keys.Verify(token, "billing", time.Now())
	fmt.Println(keys, err)
	// Output: delegation.Keys(2) <nil>
}

func ExampleLockIDOf() {
	fmt.Println(delegation.LockIDOf("abc"))
	// Output: ba7816bf8f01cfea414140de5dae2223
}

func ExampleService_Check() {
	fmt.Println(delegation.Service{Name: "billing"}.Check())
	// Output: reqlock: delegation: Service.Name is set without Service.Keys; set both, or none
}

// Calls to billing carry tokens for it. Others carry none.
func ExampleConfig() {
	config := delegation.Config{Hosts: map[string]string{"billing.internal:8080": "billing"}}
	if err := config.Check(); err != nil {
		log.Fatal(err)
	}
	for _, url := range []string{"http://billing.internal:8080/charges", "https://example.com/hook"} {
		r, err := http.NewRequest(http.MethodPost, url, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q\n", config.AudienceOf(r))
	}
	// Output:
	// "billing"
	// ""
}
