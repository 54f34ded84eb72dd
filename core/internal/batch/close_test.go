package batch

import (
	"testing"
	"testing/synctest"
	"time"
)

// Close waits for calls that callers run themselves, and for calls queued meanwhile.
func TestDo_Close(t *testing.T) {
	for name, more := range map[string]int{"alone": 0, "with others": 20} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(fx *batchFixture) {
				answers := fx.dos(1 + more)
				closed := make(chan struct{})
				go func() {
					fx.Close()
					close(closed)
				}()
				synctest.Wait()
				if r := fx.stay(newCall("late")); r.Err != ErrClosed {
					t.Errorf("a call after Close got %v, %v; want %v", r.Value, r.Err, ErrClosed)
				}
				select {
				case <-closed:
					t.Error("Close did not wait for calls in flight")
				default:
				}
				fx.answerAll()
				for range 1 + more {
					if r := <-answers; r.Err != nil {
						t.Error(r.Err)
					}
				}
				<-closed
			})
		})
	}
}

// Close answers queued calls, refuses new ones and leaves no goroutine.
func TestClose_Drains(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(100)
		closed := make(chan struct{})
		go func() {
			fx.Close()
			close(closed)
		}()
		synctest.Wait()
		late := fx.calls(1)
		wantErr(t, late[0], ErrClosed)
		for n := 0; len(fx.sizes()) > 0; n++ {
			select {
			case <-closed:
				t.Fatal("Close did not wait for calls in flight")
			default:
			}
			fx.answer(nil)
		}
		fx.wantReplies(calls)
		<-closed
		wantErr(t, fx.calls(1)[0], ErrClosed)
	})
}

// When Redis never answers, Close takes no longer than the client's timeouts, and callers wait no
// longer than their deadlines.
func TestClose_WithoutAnswers(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		calls := fx.calls(100)
		closed := make(chan struct{})
		go func() {
			fx.Close()
			close(closed)
		}()
		sleep(timeout)
		for _, c := range calls {
			wantErr(t, c, ErrUnanswered)
		}
		fx.answerAll()
		<-closed
	})
}

// Close returns at the last reply. No timer delays it.
func TestClose_IsPrompt(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(fx *batchFixture) {
				began := time.Now()
				fx.calls(100)
				if !busy {
					fx.answerAll()
				}
				closed := make(chan struct{})
				go func() {
					fx.Close()
					close(closed)
				}()
				fx.answerAll()
				<-closed
				if took := time.Since(began); took != 0 {
					t.Errorf("Close waited %v", took)
				}
			})
		})
	}
}

// A runner about to leave a closed lane that is loaded once more sends those calls first.
func TestClose_CallQueuedMeanwhile(t *testing.T) {
	withFakeClock(t, func(fx *batchFixture) {
		slow := newCall("slow")
		slow.Reply <- Reply{} // blocks the runner that delivers to it
		fx.Send(slow, time.Now())
		calls := fx.calls(3 + 2)
		closed := make(chan struct{})
		go func() {
			fx.Close()
			close(closed)
		}()
		fx.answer(nil)
		fx.wantSizes("two are queued", 1, 1, 1)
		sleep(leastSlow) // the queued calls may start now, on the runner that is blocked
		<-slow.Reply
		fx.wantSizes("they are sent", 1, 1, 1, 2)
		fx.answerAll()
		fx.wantReplies(append(calls, slow))
		<-closed
	})
}
