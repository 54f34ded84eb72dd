package main

// The mutants of core: holds, hand-overs, waiters, kinds, several locks, Close.
var coreMutants = []mutant{
	// Owners and counts.
	{
		promise: "a wire owner is used once",
		file:    "core/waiter.go",
		old:     "w.pending = newOwner()",
		new:     "w.pending = max(1, ownerOf(w.link))",
		nets:    []string{"core TestOwner_EachHoldHasItsOwnWireOwner", "core TestRelease_StrayAfterReacquire"},
	},
	{
		promise: "wire owners of a client differ",
		file:    "core/engine.go",
		old:     "return wire.Owner(e.id, owner)",
		new:     "return wire.Owner(e.id, owner%3)",
		nets:    []string{"core TestOwner_EachHoldHasItsOwnWireOwner", "sim"},
	},
	{
		promise: "a context enters only the names of its leases again",
		file:    "core/level.go",
		old:     "l.hold.entry.key != key || ",
		new:     "",
		nets:    []string{"core TestReentry_FollowsTheLease"},
	},
	{
		promise: "a context enters no name again by a lease that has ended",
		file:    "core/level.go",
		old:     " || l.Err() != nil {",
		new:     " {",
		nets:    []string{"core TestReentry_OnlyLiveLeasesCount"},
	},
	{
		promise: "the contexts of a MultiLock do not have the owner of its attempt",
		file:    "core/multi.go",
		old:     "return newSet(ctx, m.whole",
		new:     "return newSet(WithOwner(ctx), m.whole",
		nets:    []string{"core TestReentry_GoroutinesExcludeEachOther"},
	},
	{
		promise: "a caller that its own request keeps out is told so",
		file:    "core/waiter.go",
		old:     "\treturn sameRequest\n",
		new:     "\treturn anotherOwner\n",
		nets:    []string{"core TestReentry_RefusalByItself", "core TestReentry_WaitsForItself"},
	},
	{
		promise: "a lookup asks each bound context once",
		file:    "core/bound.go",
		old:     "\tcase cancelKey:\n\t\treturn c.ending().Value(key)\n\t}\n",
		new:     "\t}\n\tif v := c.ending().Value(key); v != nil {\n\t\treturn v\n\t}\n",
		nets:    []string{"core TestBind_LooksUpOnce"},
	},
	{
		promise: "a grant ends every other hold that it proves lost",
		file:    "core/entry.go",
		old:     "return other != h && other.claim.State() == claim.Held &&"
		new:     "return false &&"
		nets:    []string{"core TestAcquire_EndsAnOtherHoldOfTheName", "sim"},
	},
	{
		promise: "a grant of one side ends what it excludes of the other",
		file:    "core/entry.go",
		old:     "(!h.kind.shared || other.claim.Levels().Exclusive > 0)"
		new:     "!h.kind.shared"
		nets:    []string{"core TestAcquire_EndsTheOtherSide"},
	},
	{
		promise: "a grant that another one overtook does not count",
		file:    "core/internal/claim/grant.go",
		old:     "if g.Outrun {"
		new:     "if false {"
		nets:    []string{"core/internal/claim TestGrant_AllVerdicts", "core TestAcquire_ReplyOutrunByAnotherGrant"},
	},
	{
		promise: "ForceUnlock reaches a grant on its way",
		file:    "core/internal/claim/grant.go",
		old:     "case g.Forced:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestGrant_AllVerdicts", "core TestForceUnlock_GrantOnItsWay"},
	},
	{
		promise: "ForceUnlock reaches a hand-over on its way",
		file:    "core/internal/claim/handover.go",
		old:     "case o.Forced:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestHandOver_AllVerdicts", "core TestForceUnlock_HandOverOnItsWay", "core TestHandOver_EveryOutcome"},
	},
	{
		promise: "ForceUnlock reaches the member of a RedLock on its way",
		file:    "core/entry.go",
		old:     "if w.entry == e && w.pending",
		new:     "if w.entry == nil && w.pending",
		nets:    []string{"core TestForceUnlock_GrantPastTheQueueOnItsWay"},
	},
	{
		promise: "a message about ForceUnlock is a hint that the holder verifies",
		file:    "core/verify.go",
		old:     "!there[2*i] && !there[2*i+1] && h.loseIfHeld(ErrLockLost)",
		new:     "(!there[2*i] || !there[2*i+1] || i >= 0) && h.loseIfHeld(ErrLockLost)",
		nets:    []string{"core TestInbox_MessagesAreHints"},
	},
	{
		promise: "a hold that is released while Redis is asked about it is not lost",
		file:    "core/verify.go",
		old:     "if h.claim.State() == claim.Held {\n\t\tl ="
		new:     "if !h.claim.Ended() {\n\t\tl ="
		nets:    []string{"core TestInbox_ReleaseMeanwhile"},
	},
	{
		promise: "ForceUnlock of another client reaches a grant on its way",
		file:    "core/entry.go",
		old:     "if w.aside != nil && w.aside.hinted {",
		new:     "if false {",
		nets:    []string{"core TestForceUnlock_OfAnotherClientBeforeTheReply"},
	},
	{
		promise: "a user who may not subscribe to the client's channel keeps the other subscriptions",
		file:    "core/inbox.go",
		old:     "if err != nil || n != 0 {",
		new:     "if err != nil || n >= 0 {",
		nets:    []string{"core TestInbox_WithoutPermission"},
	},
	{
		promise: "Acquire does not wait for a late re-entry to be taken back",
		file:    "core/hold.go",
		old:     "t.giveTo(h.sendCount)"
		new:     "h.sendCount()"
		nets:    []string{"core TestDeadline_LateReentryIsTakenBack"},
	},
	{
		promise: "reconnects do not have all holds verified several times at once",
		file:    "core/inbox.go",
		old:     "if _, asking := b.asking[q]; asking {",
		new:     "if _, asking := b.asking[q]; asking && !q.all {",
		nets:    []string{"core TestInbox_VerifiesAllOnceAtATime"},
	},
	{
		promise: "a confirmation while all holds are verified has them verified once more",
		file:    "core/inbox.go",
		old:     "\t\tb.asking[q] = true\n",
		new:     "",
		nets:    []string{"core TestInbox_VerifiesAllOnceAtATime"},
	},
	{
		promise: "a client that returns to its channel before the hub has left it verifies its holds",
		file:    "core/inbox.go",
		old:     "if confirmed {",
		new:     "if confirmed && false {",
		nets:    []string{"core TestInbox_ReturnsBeforeTheHubHasLeft"},
	},
	{
		promise: "ForceUnlock tells the holders of this client",
		file:    "core/forceunlock.go",
		old:     "if h.lose(ErrLockLost) {",
		new:     "if h == nil {",
		nets:    []string{"core TestReadWrite_ForceUnlock", "core TestForceUnlock_WriterThatReads"},
	},
	{
		promise: "one command at a time changes a hold",
		file:    "core/internal/claim/turn.go",
		old:     "if !t.taken {\n"
		new:     "if true {\n"
		nets:    []string{"core/internal/claim TestTurn_InOrder", "core TestHold_OneChangeAtATime"},
	},
	{
		promise: "a reader cannot become a writer",
		file:    "core/internal/claim/hold.go",
		old:     "if more == ExclusiveEntry && h.sure.Exclusive == 0 {"
		new:     "if false {"
		nets:    []string{"core/internal/claim TestHold_Levels", "core TestReadWrite_DowngradeAndUpgrade"},
	},
	{
		promise: "a release that Redis repeats for us counts as done",
		file:    "core/internal/claim/release.go",
		old:     "freedEarlier := r.Stray && r.LeaseLeft"
		new:     "freedEarlier := false"
		nets:    []string{"core/internal/claim TestRelease_AllVerdicts", "core TestRelease_RetryFindsNothing", "core TestRetry_LostReply"},
	},
	{
		promise: "a release of a lost lock is an error",
		file:    "core/internal/claim/release.go",
		old:     "if v.Err = r.Err; missing {"
		new:     "if v.Err = r.Err; false {"
		nets:    []string{"core/internal/claim TestRelease_AllVerdicts", "core TestRelease_RetryFindsNothing", "core TestRelease_ExpiredLock", "core TestForceUnlock_FixedLeaseElsewhere"},
	},
	{
		promise: "a downgrade is resent until Redis accepts it",
		file:    "core/hold.go",
		old:     "if !h.downgraded(g) {",
		new:     "if true {",
		nets:    []string{"core TestReadWrite_DowngradeIsRetried"},
	},
	{
		promise: "an abandoned re-entry does not stay in the count",
		file:    "core/hold.go",
		old:     "if h.apply(x, g, answer, err, noop) == nil {",
		new:     "if h.apply(x, g, answer, err, noop) != nil {",
		nets:    []string{"core TestCount_AbandonedReentry"},
	},

	// Deadlines and loss.
	{
		promise: "a lease ends with the nearer of both clocks",
		file:    "core/internal/clock/clock.go",
		old:     "return min(deadline",
		new:     "return max(deadline",
		nets:    []string{"core/internal/clock TestInstant_EitherClock", "core TestDeadline_EitherClockEndsTheLease"},
	},
	{
		promise: "a lease ends here before it ends in Redis",
		file:    "core/internal/clock/clock.go",
		old:     "return min(lease/100+2*time.Millisecond, lease/4)",
		new:     "return min(lease/100-lease/100, 2*time.Millisecond)",
		nets:    []string{"core/internal/clock TestLeaseEnd", "core TestDeadline_Margin", "sim"},
	},
	{
		promise: "a lease counts from before its command was queued",
		file:    "core/internal/redisop/op.go",
		old:     "\tx.inFlight = false\n",
		new:     "\tx.inFlight, x.sent = false, x.r.cfg.Clock(time.Now())\n",
		nets:    []string{"core TestDeadline_CountsFromBeforeTheCommand", "sim"},
	},
	{
		promise: "Err compares the clock and waits for no timer",
		file:    "core/lease.go",
		old:     "if err == nil && over {",
		new:     "if err == nil && over && l.fixed < 0 {",
		nets:    []string{"core TestDeadline_NeedsNoTimer"},
	},
	{
		promise: "a grant that comes too late is no lease",
		file:    "core/internal/claim/grant.go",
		old:     "case g.Late:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestGrant_AllVerdicts", "core TestDeadline_LateGrantIsReleased"},
	},
	{
		promise: "contexts end before a release frees the lock",
		file:    "core/lease.go",
		old:     "\t\tl.endContexts(ErrReleased)\n",
		new:     "\t\tdefer l.endContexts(ErrReleased)\n",
		nets:    []string{"core TestLoss_ContextsEndBeforeTheLockIsFreed"},
	},
	{
		promise: "contexts end before ForceUnlock frees the lock",
		file:    "core/forceunlock.go",
		old:     "\tlost := l.lose(fields)\n",
		new:     "\tvar lost []string\n\tdefer l.lose(fields)\n",
		nets:    []string{"core TestLoss_ContextsEndBeforeTheLockIsFreed"},
	},
	{
		promise: "a hold that Redis does not know is lost",
		file:    "core/internal/claim/renewal.go",
		old:     "case m.Same:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestMissing_Verdicts", "core TestRenewal_ExpiredLock", "core TestLoss_EndsEveryLease"},
	},
	{
		promise: "a hold that was just released is not reported as lost",
		file:    "core/internal/claim/renewal.go",
		old:     "case m.State != Held:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestMissing_Verdicts", "core TestWatchdog_ZeroDuringRelease", "core TestWatchdog_ZeroAfterRelease"},
	},
	{
		promise: "an error of a renewal is not a loss",
		file:    "core/client.go",
		old:     "\t\t\tverdicts[i] = watchdog.Refused",
		new:     "\t\t\tverdicts[i] = watchdog.Gone",
		nets:    []string{"core TestLoss_NotByAnError", "core TestWatchdog_RetriesUntilTheDeadline"},
	},
	{
		promise: "a renewal without a reply prolongs nothing",
		file:    "core/client.go",
		old:     "\t\t\tverdicts[i] = watchdog.Unanswered\n",
		new:     "\t\t\th.handleRenewed(x.Sent(), lease, holds[i], results[i])\n",
		nets:    []string{"core TestFaults_HolderCutOff", "sim"},
	},
	{
		promise: "a renewal of a hold that is gone prolongs nothing",
		file:    "core/client.go",
		old:     "\t\tcase h.handleMissing(holds[i], missing):\n\t\t\tverdicts[i] = watchdog.Gone\n",
		new:     "\t\tcase true:\n\t\t\th.handleRenewed(x.Sent(), lease, holds[i], results[i])\n",
		nets:    []string{"core TestRenewal_ExpiredLock", "sim"},
	},
	{
		promise: "a renewal counts from before its command",
		file:    "core/client.go",
		old:     "if !h.handleRenewed(x.Sent(), lease, holds[i], results[i]) {",
		new:     "if !h.handleRenewed(c.clock(), lease, holds[i], results[i]) {",
		nets:    []string{"core TestDeadline_CountsFromBeforeTheCommand", "sim"},
	},
	{
		promise: "a renewal that replicas did not confirm prolongs nothing",
		file:    "core/client.go",
		old:     "problem = x.Proven()",
		new:     "problem = nil",
		nets:    []string{"core TestReplicas_Renewals"},
	},
	{
		promise: "clocks that part have every lease renewed at once",
		file:    "core/client.go",
		old:     "\t\tc.dog.RenewAll()",
		new:     "",
		nets:    []string{"core TestClocks_DriftRenewsAtOnce"},
	},
	{
		promise: "a reader's hold is re-asserted also with a LeaseTime",
		file:    "core/level.go",
		old:     "l.watched || l.kind.shared && l.leftAtLocked(at) > l.hold.engine().beat()",
		new:     "l.watched",
		nets:    []string{"core TestRead_ReassertsWhatOthersShorten"},
	},
	{
		promise: "a renewal does not count for a read level that it did not know",
		file:    "core/internal/claim/renewal.go",
		old:     "case r.Shared > r.Known:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestRenewal_Verdicts", "core TestRead_RenewalBesideAReentry", "sim"},
	},
	{
		promise: "a change of a reader's levels restores what a stray has shortened",
		file:    "core/kind.go",
		old:     "max(lease, g.need)",
		new:     "lease",
		nets:    []string{"core TestReadWrite_DowngradeKeepsTheLease"},
	},
	{
		promise: "every time is later than none, also in a simulation that begins in 2000",
		file:    "core/internal/clock/clock.go",
		old:     "time.Now().Add(-50 * 365 * 24 * time.Hour)",
		new:     "time.Now()",
		nets:    []string{"core/internal/clock TestBubble", "sim"},
	},

	// Hand-overs.
	{
		promise: "a hand-over that cannot be done becomes a plain release",
		file:    "core/handover.go",
		old:     ".Replicated().Hasty()",
		new:     ".Replicated()",
		nets:    []string{"core TestRelease_HandOverThatCannotBeDone"},
	},
	{
		promise: "a lock is handed on among waiters of its kind",
		file:    "core/handover.go",
		old:     "if first == nil || first.Item.kind != h.kind {",
		new:     "if first == nil {",
		nets:    []string{"core TestHandOver_NotToAnotherKind"},
	},
	{
		promise: "an heir that has left frees what it was handed",
		file:    "core/internal/claim/handover.go",
		old:     "if !v.Accepted && !v.KeepsOn {"
		new:     "if false {"
		nets:    []string{"core/internal/claim TestHandOver_AllVerdicts", "core TestHandOver_EveryOutcome", "core TestHandOver_WaiterHasLeft", "sim"},
	},
	{
		promise: "an heir whose lease is over is told so",
		file:    "core/internal/claim/handover.go",
		old:     "case o.Late:"
		new:     "case false:"
		nets:    []string{"core/internal/claim TestHandOver_AllVerdicts", "core TestHandOver_EveryOutcome"},
	},
	{
		promise: "a hold that was lost during its hand-over is not released",
		file:    "core/internal/claim/handover.go",
		old:     "if o.Reply == NotHeld && !(o.Stray && o.LeaseLeft) {"
		new:     "if false {"
		nets:    []string{"core/internal/claim TestHandOver_AllVerdicts", "core TestHandOver_EveryOutcome", "core TestHandOver_LockWasLost"},
	},
	{
		promise: "the first waiter asks after a hand-over that did not take place",
		file:    "core/internal/claim/handover.go",
		old:     "v.Wake = !v.Accepted && o.Reply != FreedInstead"
		new:     "v.Wake = false"
		nets:    []string{"core/internal/claim TestHandOver_AllVerdicts", "core TestHandOver_EveryOutcome", "core TestHandOver_LockWasLost"},
	},

	// Waiting.
	{
		promise: "a waiter asks again once it is subscribed",
		file:    "core/entry.go",
		old:     "\twake(e.queue.Message())",
		new:     "",
		nets:    []string{"core TestWaiting_AsksAgainWhenSubscribed"},
	},
	{
		promise: "an outage fails all who were queued at once",
		file:    "core/waiter.go",
		old:     "e.dismissLocked(arrivals, err)",
		new:     "wake(e.queue.Leave(&w.Waiter))",
		nets:    []string{"core TestOutage_FailsAllWhoWereQueued"},
	},
	{
		promise: "WaitForever outlasts an outage",
		file:    "core/internal/claim/failure.go",
		old:     "Stays: f.Outlasts, Sleeps: f.Outlasts && !f.Out}"
		new:     "}"
		nets:    []string{"core/internal/claim TestFailure_AllVerdicts", "core TestWaitForever_Replies", "core TestWaitForever_OutlastsAnOutage"},
	},
	{
		promise: "WaitForever ends at an error that waiting does not heal",
		file:    "core/waiter.go",
		old:     "return heals(err)\n\t}\n\treturn !w.NoWait",
		new:     "return true\n\t}\n\treturn !w.NoWait",
		nets:    []string{"core TestWaitForever_Replies"},
	},
	{
		promise: "only those who wait for ever stay queued in an outage",
		file:    "core/entry.go",
		old:     "w.Item.outlasts(err)",
		new:     "heals(err)",
		nets:    []string{"core TestOutage_FailsAllWhoWereQueued"},
	},
	{
		promise: "in a crowd of waiters for a fair lock few poll",
		file:    "core/internal/claim/failure.go",
		old:     "v.Sleeps, v.ByPlace = true, r.Place > 1 && !r.First"
		new:     "v.Sleeps = true"
		nets:    []string{"core/internal/claim TestRefusal_Verdicts", "core TestFair_CrowdPollsRarely"},
	},
	{
		promise: "waiters for a fair lock that do not hear their channels poll in time",
		file:    "core/waiter.go",
		old:     "w.inTime(w.entry.engine().leastPoll())",
		new:     "w.entry.engine().leastPoll()",
		nets:    []string{"core TestFair_PollsWhileItDoesNotHear"},
	},
	{
		promise: "a fair waiter polls before others take it for dead",
		file:    "core/kind.go",
		old:     "return min(c.opts.PollInterval, fairPoll, c.opts.FairWaitTimeout/4)",
		new:     "return c.opts.PollInterval",
		nets:    []string{"core TestFair_PollsBeforeItsDeadline"},
	},
	{
		promise: "a fair waiter that leaves gives up its place in Redis",
		file:    "core/waiter.go",
		old:     "\tif lease == nil {\n\t\tw.cleanUp",
		new:     "\tif false {\n\t\tw.cleanUp",
		nets:    []string{"core TestFair_WaiterLeaves", "sim"},
	},
	{
		promise: "a fair waiter that leaves gives up its channel",
		file:    "core/waiter.go",
		old:     "\t\tc.hub.Unsubscribe(p.channel, w)\n",
		new:     "\t\t_ = c\n",
		nets:    []string{"core TestFair_WaiterLeaves", "sim"},
	},
	{
		promise: "a caller that leaves a question frees what it is granted",
		file:    "core/waiter.go",
		old:     "if x.InFlight() || x.Stray() || !left.None() {"
		new:     "if false {",
		nets:    []string{"core TestCancel_DuringAcquire", "core TestCancel_Hundreds", "sim"},
	},
	{
		promise: "absence is known only where listeners are counted",
		file:    "core/kind.go",
		old:     "Counts:       c.countsListeners(),",
		new:     "Counts:       true,",
		nets:    []string{"core TestFair_WhereListenersAreCounted"},
	},
	{
		promise: "TTLs beyond 292 years overflow nowhere",
		file:    "core/internal/lua/scripts.go",
		old:     "if ms > math.MaxInt64/int64(time.Millisecond) {",
		new:     "if ms > math.MaxInt64-1 {",
		nets:    []string{"core/internal/lua TestReadAcquire", "core TestWaiting_OddTTLs"},
	},
	{
		promise: "a message that was lost is made up for by a poll",
		file:    "core/engine.go",
		old:     "return min(ttl, most-time.Millisecond) + time.Millisecond",
		new:     "return ttl",
		nets:    []string{"core TestWaiting_Pauses", "core TestWaiting_PollsWhenAMessageIsLost", "sim"},
	},
	{
		promise: "a waiter that hears its channel polls rarely",
		file:    "core/engine.go",
		old:     "return round + rand.N(round/10)",
		new:     "return interval",
		nets:    []string{"core TestReliance_PollsRarely", "core TestReliance_Rates"},
	},
	{
		promise: "waiters that were woken together do not poll together",
		file:    "core/engine.go",
		old:     "return interval + rand.N(round)",
		new:     "return round",
		nets:    []string{"core TestReliance_Rates"},
	},
	{
		promise: "a waiter whose subscription is lost polls again",
		file:    "core/waiter.go",
		old:     "if w.deafLocked(at, since) {",
		new:     "if false {",
		nets:    []string{"core TestReliance_EndsWithTheSubscription"},
	},
	{
		promise: "a connection that is not heard is not relied on",
		file:    "core/internal/hub/hub.go",
		old:     "!r.line.heardSince(since)",
		new:     "!r.line.heardSince(since.Add(-time.Hour))",
		nets:    []string{"core/internal/hub TestHears"},
	},

	// Clean-ups.
	{
		promise: "a stray acquire of a refused try is freed",
		file:    "core/internal/claim/left.go",
		old:     "Left{There: granted || stray, Stray: stray}"
		new:     "Left{There: granted}"
		nets:    []string{"core/internal/claim TestLeft", "core TestStray_AcquireAfterRefusal", "core TestStray_AcquireAfterFailure", "sim"},
	},
	{
		promise: "a stray acquire of a released hold is freed",
		file:    "core/internal/claim/left.go",
		old:     "Left{There: !answered || rest, Stray: stray}"
		new:     "Left{There: !answered || rest}"
		nets:    []string{"core/internal/claim TestRelease_AllVerdicts", "core TestStray_AcquireAfterRelease"},
	},
	{
		promise: "a release that was not answered is repeated in the background",
		file:    "core/internal/claim/left.go",
		old:     "Left{There: !answered || rest, Stray: stray}"
		new:     "Left{There: rest, Stray: stray}"
		nets:    []string{"core/internal/claim TestRelease_AllVerdicts", "core TestCleanup_GoesOnWhenRedisIsBack", "core TestOutcome_Unknown"},
	},
	{
		promise: "an outage starts the wait for strays anew",
		file:    "core/internal/claim/cleanup.go",
		old:     "if !r.Sure {"
		new:     "if !r.Sure && c.strays == noStrays {"
		nets:    []string{"core/internal/claim TestCleanup_Settle", "core TestCleaner_StrayAfterTheFirstAnswer"},
	},
	{
		promise: "strays are waited for from the first answer on",
		file:    "core/internal/claim/cleanup.go",
		old:     "v.Done = v.Pause <= 0"
		new:     "v.Done = true"
		nets:    []string{"core/internal/claim TestCleanup_Settle", "core TestCleaner_StrayAfterTheFirstAnswer", "sim"},
	},
	{
		promise: "Close repeats a clean-up that fails",
		file:    "core/cleaner.go",
		old:     "case err == nil || err == ErrWrongKind:",
		new:     "case err == nil || err != errSlotMoving:",
		nets:    []string{"core TestClose_RepeatsCleanups"},
	},
	{
		promise: "Close runs the clean-ups that are left",
		file:    "core/client.go",
		old:     "\tc.cleaner.close(ctx)\n",
		new:     "",
		nets:    []string{"core TestClose_RepeatsCleanups", "sim"},
	},
	{
		promise: "a clean-up ends with the lease",
		file:    "core/internal/claim/cleanup.go",
		old:     "return r.Failed && now.After(c.expires)"
		new:     "return false"
		nets:    []string{"core/internal/claim TestCleanup_Expires", "core TestCleanup_EndsWithTheLease"},
	},
	{
		promise: "a clean-up that fails is repeated until the lease ends",
		file:    "core/internal/claim/cleanup.go",
		old:     "return r.Failed && now.After(c.expires)"
		new:     "return r.Failed"
		nets:    []string{"core/internal/claim TestCleanup_Expires", "sim"},
	},
	{
		promise: "an outage that outlasts the lease does not end a clean-up",
		file:    "core/internal/claim/cleanup.go",
		old:     "c.expires = now.Add(c.again)"
		new:     "_ = c.again"
		nets:    []string{"core/internal/claim TestCleanup_Expires", "core TestOutage_LongerThanTheLease", "sim"},
	},
	{
		promise: "a renewal that was held back does not bring a lost reader back",
		file:    "core/internal/claim/hold.go",
		old:     "return h.stray || !freed && h.deepest > 0"
		new:     "return h.stray"
		nets:    []string{"core/internal/claim TestHold_Strays", "core TestOutage_StrayRenewalOfAReader", "sim"},
	},

	// Close.
	{
		promise: "Close refuses new work",
		file:    "core/waiter.go",
		old:     "if e.engine().state.Load() != open {",
		new:     "if false {",
		nets:    []string{"core TestClose_RefusesNewWork"},
	},
	{
		promise: "Close wakes waiters",
		file:    "core/client.go",
		old:     "c.names.each(func(e *entry) { e.dismissLocked(e.queue.Arrivals(), ErrClosed) })",
		new:     "",
		nets:    []string{"core TestClose_WakesWaiters"},
	},
	{
		promise: "Close ends the leases that are left",
		file:    "core/client.go",
		old:     "left, late := c.endHolds(), c.awaitReleases()",
		new:     "left, late := 0, c.awaitReleases()",
		nets:    []string{"core TestClose_EndsTheRest"},
	},
	{
		promise: "Close waits for releases under way",
		file:    "core/client.go",
		old:     "left, late := c.endHolds(), c.awaitReleases()",
		new:     "left, late := c.endHolds(), error(nil)",
		nets:    []string{"core TestClose_ReleaseUnderWayAtTheDeadline", "core TestClose_WaitsForReleases"},
	},

	// Several locks.
	{
		promise: "MultiLocks over equal names on several servers give way",
		file:    "core/multi.go",
		old:     "if !m.tied(i) {",
		new:     "if true {",
		nets:    []string{"core TestMulti_OneNameOnSeveralServers/in a ring"},
	},
	{
		promise: "every process takes equal names in the order of their servers",
		file:    "core/multi.go",
		old:     "cmp.Compare(addressOf(a), addressOf(b)),",
		new:     "",
		nets:    []string{"core TestMulti_OrderOfEqualNames"},
	},
	{
		promise: "every process takes locks in the order of their names",
		file:    "core/multi.go",
		old:     "cmp.Compare(keyOf(a), keyOf(b)),",
		new:     "",
		nets:    []string{"core TestMulti_Order"},
	},
	{
		promise: "a MultiLock takes the write side before the read side",
		file:    "core/multi.go",
		old:     "cmp.Compare(rank(a), rank(b))",
		new:     "cmp.Compare(rank(b), rank(a))",
		nets:    []string{"core TestMulti_Order"},
	},
	{
		promise: "a MultiLock that fails gives back what it took",
		file:    "core/multi.go",
		old:     "\t\t\treleaseAll(ctx, got)\n",
		new:     "",
		nets:    []string{"core TestMulti_AllOrNone", "core TestMulti_GivesUpTheFirst"},
	},
	{
		promise: "a RedLock needs a majority",
		file:    "core/red.go",
		old:     "return len(r.locks)/2 + 1",
		new:     "return len(r.locks) / 2",
		nets:    []string{"core TestRed_Majority"},
	},
	{
		promise: "a RedLock ends when a majority of its members has",
		file:    "core/set.go",
		old:     "return left[len(left)-s.quorum]",
		new:     "return left[len(left)-1]",
		nets:    []string{"core TestRed_Deadline", "core TestRed_Expires"},
	},
	{
		promise: "a RedLock gives back what it got without a majority",
		file:    "core/red.go",
		old:     "\t\treleaseAll(ctx, members)\n\t\tfinal",
		new:     "\t\tfinal",
		nets:    []string{"core TestRed_Majority", "core TestRed_Hopeless"},
	},
	{
		promise: "a set that was lost releases the rest of its members",
		file:    "core/set.go",
		old:     "m.abandon()",
		new:     "_ = m.abandon",
		nets:    []string{"core TestMulti_LosesAllWithOne"},
	},

	// Once.
	{
		promise: "those who wait get the record the moment it is left",
		file:    "core/internal/claim/release.go",
		old:     "v.Deliver = v.Err == nil && r.Records"
		new:     "v.Deliver = false"
		nets:    []string{"core/internal/claim TestRelease_AllVerdicts", "core TestOnce_WaitersOfTheHoldersProcess"},
	},
	{
		promise: "a record that may have expired is not delivered",
		file:    "core/entry.go",
		old:     "&& e.engine().clock().Since(sent) < r.TTL {",
		new:     "{",
		nets:    []string{"core TestOnce_ExpiredRecordIsNotDelivered"},
	},
	{
		promise: "the queue of this process does not hide a record",
		file:    "core/waiter.go",
		old:     "ok {\n\t\treturn &recorded{record: []byte(record)}\n",
		new:     "ok && false {\n\t\treturn &recorded{record: []byte(record)}\n",
		nets:    []string{"core TestOnce_TheQueueDoesNotHideTheRecord"},
	},

	{
		promise: "those who have waited for a holder do not take its place",
		file:    "core/waiter.go",
		old:     "p.looks = w.waited && w.kind.looks",
		new:     "p.looks = false",
		nets:    []string{"core TestOnce_WithoutSuccession"},
	},
	{
		promise: "a caller that has waited for no holder may be the first",
		file:    "core/waiter.go",
		old:     "p.looks = w.waited && w.kind.looks",
		new:     "p.looks = w.signal != nil && w.kind.looks",
		nets:    []string{"core TestOnce_WithoutSuccessionBehindACallerThatLeaves"},
	},
	{
		promise: "a record goes only to those who wait for the same",
		file:    "core/waiter.go",
		old:     "&& r.binding != w.kind.marks.Binding {",
		new:     "&& false {",
		nets:    []string{"core TestOnce_BindingOfWaiters"},
	},

	// Errors and names.
	{
		promise: "errors hide names unless LogNames is set",
		file:    "core/errors.go",
		old:     "if l.shown {",
		new:     "if true {",
		nets:    []string{"core TestErrors_LogNames"},
	},
	{
		promise: "Ping names the permission that is missing",
		file:    "core/ping.go",
		old:     `return "+" + command[1]`,
		new:     `return "+@all"`,
		nets:    []string{"core TestPing_MissingPermission"},
	},
	{
		promise: "releases are announced in both ways until the mode is known",
		file:    "core/publish.go",
		old:     "return PublishBoth",
		new:     "return PublishPlain",
		nets:    []string{"core TestPublishAuto_Unknown"},
	},
	{
		promise: "a release in a slot on the move frees the lock at once",
		file:    "core/internal/lua/scripts.go",
		old:     "case c.Script == fairRelease && len(c.args) == fairOwners+1:",
		new:     "case false:",
		nets:    []string{"core/internal/lua TestWithoutRest", "core/internal/lua TestFairReleaseInTwo"},
	},

	{
		promise: "a caller's context is not asked with the mutex held",
		file:    "core/waiter.go",
		old:     "why := w.ended()\n\te.lock()\n",
		new:     "e.lock()\n\twhy := w.ended()\n",
		nets:    []string{"core TestAcquire_ContextThatAsksForAnotherLease"},
	},
	{
		promise: "an owner does not enter a read/write lock by its plain hold",
		file:    "core/kind.go",
		old:     "return k.side == held.side && ",
		new:     "return ",
		nets:    []string{"core TestContract_Client"},
	},
	{
		promise: "an owner gets no fenced lease without a token",
		file:    "core/kind.go",
		old:     " && (k != fencedLock || held == fencedLock)",
		new:     "",
		nets:    []string{"core TestContract_Client"},
	},
	{
		promise: "ForceUnlock frees no lock of a kind that it can tell apart",
		file:    "core/forceunlock.go",
		old:     "len(fields) > 0 && l.kind.side != ",
		new:     "false && l.kind.side != ",
		nets:    []string{"core TestContract_Client"},
	},
	{
		promise: "ForceUnlockOwners takes the lock from the owners that it was given",
		file:    "core/forceunlock.go",
		old:     "\tforced, unsure, err := l.takeFrom(",
		new:     "\towners, _ = l.holders(ctx)\n\tforced, unsure, err := l.takeFrom(",
		nets:    []string{"core TestForceUnlockOwners_AmidHandOvers"},
	},
	{
		promise: "a caller without a context leaves the turn to others",
		file:    "core/hold.go",
		old:     "\t_ = ctx.Done() // a nil ctx panics here, and not with the turn\n"
		new:     ""
		nets: []string{"core TestExtend_WithoutContext"},
	},
	{
		promise: "the longest options do not overflow",
		file:    "core/options.go",
		old:     "*d.value = min(*d.value, longest)",
		new:     "",
		nets:    []string{"core TestFair_LongestCommandTimeout"},
	},
	{
		promise: "Close waits for releases that wait for their turn",
		file:    "core/client.go",
		old:     "2*c.opts.CommandTimeout",
		new:     "c.opts.CommandTimeout",
		nets:    []string{"core TestClose_ReleaseThatWaitsForItsTurn"},
	},
	{
		promise: "Ping leaves no lock in Redis if its reply is late",
		file:    "core/ping.go",
		old:     "left = leftBy(acquire, false)"
		new:     "",
		nets:    []string{"core TestPing_LeavesNoLock"},
	},
	{
		promise: "a RedLock tries again if its masters did not answer in time",
		file:    "core/errors.go",
		old:     "ErrQuota, errNoVote, errNoMajority,",
		new:     "ErrQuota, errNoMajority,",
		nets:    []string{"core TestRed_WaitsForSilentMasters"},
	},
	{
		promise: "an acquire outlasts connections to a demoted primary",
		file:    "core/internal/redisop/table.go",
		old:     `{"READONLY", class{moved, faultReadOnly}},`,
		new:     `{"READONLY", class{away, faultReadOnly}},`,
		nets:    []string{"core TestReadOnly_Retried", "core/internal/redisop TestTable_IsDocumented"},
	},
	{
		promise: "who waits keeps its wait while a primary is to be found",
		file:    "core/waiter.go",
		old:     "return !w.NoWait && errors.Is(err, ErrReadOnly)",
		new:     "return false",
		nets:    []string{"core TestReadOnly_Stays"},
	},
	{
		promise: "a connection that is silent leaves time for another",
		file:    "core/internal/batch/conn.go",
		old:     "t = time.Now().Add(time.Until(t) / 3)",
		new:     "",
		nets:    []string{"core TestIdle_DroppedConnections"},
	},
	{
		promise: "connections that were not heard since one was silent are not used",
		file:    "core/internal/batch/conn.go",
		old:     "c.all.muted.Store(asked)",
		new:     "_ = asked",
		nets:    []string{"core TestIdle_DroppedConnections"},
	},
	{
		promise: "an empty pool is told from a server that hangs",
		file:    "core/internal/batch/batch.go",
		old:     "return Exhausted(ls.of[c.Purpose].node)",
		new:     "return false",
		nets:    []string{"core TestSilence_EmptyPool"},
	},
	{
		promise: "a server that hangs costs one CommandTimeout",
		file:    "core/internal/redisop/silence.go",
		old:     "silent.proven = true",
		new:     "silent.proven = false",
		nets:    []string{"core TestSilence_FailsAtOnce"},
	},
	{
		promise: "an error of TLS is not executed",
		file:    "core/internal/batch/conn.go",
		old:     "return nil, &ConnectError{err}",
		new:     "return nil, err",
		nets:    []string{"core TestTLS_Faults"},
	},
	{
		promise: "a key of another type ends the lease at the next renewal",
		file:    "core/client.go",
		old:     "if redisop.IsWrongType(problem) {",
		new:     "if false {",
		nets:    []string{"core TestOverwritten_IsALoss"},
	},
	{
		promise: "a key beside the lock's proves no loss",
		file:    "core/hold.go",
		old:     "case h.overwritten():\n\t\tknown.Err"
		new:     "case true:\n\t\tknown.Err"
		nets:    []string{"core TestOverwritten_CompanionKeys", "core TestOnce_WrongKind"},
	},
}
