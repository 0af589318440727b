------------------------------ MODULE Session ------------------------------
(***************************************************************************)
(* The lifecycle of a session, moving by the table of the code (module     *)
(* Table is made from runner/session/lifecycle.py).  The same model for    *)
(* our own checker is tests/model/session_model.py, where the words are    *)
(* explained; tests/model/test_tlc.py holds the two to the same figures.   *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, Table

CONSTANTS Clients, Incarnations

None   == 0
NoTwin == -1
Nobody == "nobody"

Uses     == {"execute", "edit", "checkpoint", "attach"}
Placing  == {"execute", "edit"}
Answered == {"boot", "execute", "restore"}

VARIABLES
    vm,         \* one record: belief, record on disk, truth on disk, who holds the session
    twin,       \* another clone of the snapshot: NoTwin, None while unbound, or its incarnation
    minted,     \* how many incarnations there have been
    expects,    \* per client: what it sends as X-Expected-Incarnation
    unanswered  \* per client: the operation that was done and whose reply was lost

vars == <<vm, twin, minted, expects, unanswered>>

NewVm ==
    [state |-> "unbound", alive |-> TRUE,
     incarnation |-> None, marker |-> None, note |-> "clean", terminated |-> FALSE,
     files |-> "empty", filesOf |-> None, setUp |-> FALSE, failed |-> FALSE,
     guest |-> FALSE, holds |-> {}]

Init ==
    /\ vm = NewVm
    /\ twin = NoTwin
    /\ minted = 0
    /\ expects = [c \in Clients |-> None]
    /\ unanswered = [c \in Clients |-> Nobody]

(***************************************************************************)
(* The table                                                               *)
(***************************************************************************)
Lets(i, op, s) == Rows[i].operation = op /\ s \in Rows[i].states
Allowed(op, s) == \E i \in DOMAIN Rows : Lets(i, op, s)
RowOf(op, s)   == Rows[CHOOSE i \in DOMAIN Rows : Lets(i, op, s)]

After(op, origin, end) ==
    LET led == RowOf(op, origin).ends[end] IN IF led = "origin" THEN origin ELSE led

Dies(i, s) == Rows[i].during = s /\ "died" \in DOMAIN Rows[i].ends

\* Rows that hold the session in the same state are adopted in the same way; a test sees to it.
Adopted(s) ==
    IF \E i \in DOMAIN Rows : Dies(i, s)
    THEN Rows[CHOOSE i \in DOMAIN Rows : Dies(i, s) /\ \A j \in 1..(i - 1) : ~Dies(j, s)].ends.died
    ELSE s

(***************************************************************************)
(* The platform                                                            *)
(***************************************************************************)
NobodyWaits == unanswered' = [c \in Clients |-> Nobody]
Emptied(v)  == [v EXCEPT !.files = "empty", !.filesOf = None, !.setUp = FALSE,
                         !.marker = None, !.note = "clean"]

Clone ==
    /\ vm.alive /\ vm.state = "unbound" /\ twin = NoTwin
    /\ twin' = None
    /\ UNCHANGED <<vm, minted, expects, unanswered>>

BindTwin ==
    /\ twin = None /\ minted < Incarnations
    /\ minted' = minted + 1
    /\ twin' = minted + 1
    /\ UNCHANGED <<vm, expects, unanswered>>

VmLost ==
    /\ vm.incarnation /= None
    /\ vm' = IF twin > None
             THEN [NewVm EXCEPT !.state = "fresh", !.incarnation = twin]
             ELSE NewVm
    /\ twin' = NoTwin
    /\ NobodyWaits
    /\ UNCHANGED <<minted, expects>>

VolumeLost ==
    /\ vm.alive /\ vm.state = "ready" /\ vm.files /= "missing"
    /\ vm' = [vm EXCEPT !.files = "missing", !.filesOf = None]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

NotBegun == {h \in vm.holds : h.operation = "restore" /\ h.step = "begun"}

Die ==
    /\ vm.alive /\ vm.incarnation /= None
    /\ vm' = [vm EXCEPT
                !.alive = FALSE,
                !.holds = {},
                !.guest = FALSE,
                !.failed = @ \/ vm.note = "restoring",
                !.state = IF NotBegun = {} THEN @
                          ELSE After("restore", (CHOOSE h \in NotBegun : TRUE).origin, "undone")]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

GuestLeaves ==
    /\ vm.guest
    /\ vm' = [vm EXCEPT !.guest = FALSE]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

Restart ==
    /\ ~vm.alive
    /\ LET v == [vm EXCEPT !.alive = TRUE] IN
        \/ /\ v.note = "restoring"
           /\ \/ vm' = [Emptied(v) EXCEPT !.state = Adopted("restoring")]
              \/ vm' = [v EXCEPT !.state = "dirty", !.files = "half", !.filesOf = v.incarnation]
        \/ /\ v.note = "clean" /\ v.files /= "missing"
           /\ vm' = [v EXCEPT !.state = Adopted(@)]
        \/ /\ v.note \notin {"clean", "restoring"} \/ (v.note = "clean" /\ v.files = "missing")
           /\ vm' = [v EXCEPT !.state = "dirty"]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

(***************************************************************************)
(* What a client that waits for nothing may ask                            *)
(***************************************************************************)
Free(c) == vm.alive /\ \A h \in vm.holds : h.client /= c

AlreadyDoneIn(op, s) == <<op, s>> \in {<<"boot", "ready">>, <<"terminate", "terminated">>}

Mistaken(c) == expects[c] \notin {None, vm.incarnation}

Asks(c, op) ==
    /\ Free(c) /\ ~Mistaken(c)
    /\ \/ unanswered[c] \in {Nobody, op}
       \/ unanswered[c] \notin {Nobody, op} /\ op = "boot" /\ vm.state = "fresh"
    /\ ~AlreadyDoneIn(unanswered[c], vm.state)
    /\ Allowed(op, vm.state)

Bind(c) ==
    /\ Free(c) /\ ~Mistaken(c) /\ Allowed("bind", vm.state) /\ minted < Incarnations
    /\ minted' = minted + 1
    /\ vm' = [vm EXCEPT !.state = After("bind", @, "done"), !.incarnation = minted + 1,
                        !.marker = None, !.note = "clean", !.terminated = FALSE,
                        !.setUp = FALSE, !.failed = FALSE]
    /\ NobodyWaits
    /\ UNCHANGED <<twin, expects>>

Mismatch(c) ==
    /\ Free(c) /\ Mistaken(c)
    /\ expects' = [expects EXCEPT ![c] = None]
    /\ UNCHANGED <<vm, twin, minted, unanswered>>

AlreadyDone(c) ==
    /\ Free(c) /\ ~Mistaken(c) /\ AlreadyDoneIn(unanswered[c], vm.state)
    /\ unanswered' = [unanswered EXCEPT ![c] = Nobody]
    /\ UNCHANGED <<vm, twin, minted, expects>>

Refused(c) ==
    /\ Free(c) /\ ~Mistaken(c) /\ vm.state = "dirty"
    /\ unanswered[c] /= Nobody /\ ~Allowed(unanswered[c], "dirty")
    /\ unanswered' = [unanswered EXCEPT ![c] = Nobody]
    /\ UNCHANGED <<vm, twin, minted, expects>>

Terminate(c) ==
    /\ Asks(c, "terminate")
    /\ vm' = [Emptied(vm) EXCEPT !.state = After("terminate", vm.state, "done"), !.holds = {},
                                 !.incarnation = None, !.terminated = TRUE, !.failed = FALSE,
                                 !.guest = FALSE]
    /\ \/ NobodyWaits
       \/ unanswered' = [d \in Clients |-> IF d = c THEN "terminate" ELSE Nobody]
    /\ UNCHANGED <<twin, minted, expects>>

\* Not everything could be wiped.  On an unbound VM there is nothing of anybody's.
CannotTerminate(c) ==
    /\ Asks(c, "terminate")
    /\ vm' = IF "torn" \notin DOMAIN RowOf("terminate", vm.state).ends
             THEN [vm EXCEPT !.state = After("terminate", @, "undone")]
             ELSE [vm EXCEPT !.state = After("terminate", @, "torn"), !.holds = {},
                             !.files = "half", !.filesOf = vm.incarnation, !.note = "ended",
                             !.guest = FALSE]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

Begin(c, op) ==
    /\ Asks(c, op)
    /\ RowOf(op, vm.state).during /= "none"
    /\ vm' = [vm EXCEPT !.state = RowOf(op, vm.state).during,
                        !.holds = @ \cup {[client |-> c, operation |-> op, origin |-> vm.state,
                                           expected |-> expects[c], step |-> "begun"]}]
    /\ unanswered' = [unanswered EXCEPT ![c] = Nobody]
    /\ UNCHANGED <<twin, minted, expects>>

(***************************************************************************)
(* How an operation goes on and ends.  `v` is the VM as the step leaves    *)
(* it, but for the state and the hold.                                     *)
(***************************************************************************)
At(h, v, step) ==
    /\ vm' = [v EXCEPT !.holds = (@ \ {h}) \cup {[h EXCEPT !.step = step]}]
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

Ended(h, v, end) ==
    vm' = [v EXCEPT !.state = After(h.operation, h.origin, end), !.holds = @ \ {h}]

Fails(h, v, end) ==
    /\ Ended(h, v, end)
    /\ UNCHANGED <<twin, minted, expects, unanswered>>

Done(h, v) ==
    /\ Ended(h, v, "done")
    /\ \/ /\ expects' = [expects EXCEPT ![h.client] = v.incarnation]
          /\ unanswered' = [unanswered EXCEPT ![h.client] = Nobody]
       \/ /\ h.operation \in Answered
          /\ unanswered' = [unanswered EXCEPT ![h.client] = h.operation]
          /\ UNCHANGED expects
    /\ UNCHANGED <<twin, minted>>

BootGoesOn(h) ==
    \/ Fails(h, vm, "undone")
    \/ /\ h.step = "begun"
       /\ At(h, [vm EXCEPT !.files = IF @ = "missing" THEN "empty" ELSE @, !.setUp = TRUE],
             "set up")
    \/ /\ h.step = "set up"
       /\ Done(h, [vm EXCEPT !.marker = vm.incarnation, !.failed = FALSE])

UseGoesOn(h) ==
    IF vm.files = "missing"
    THEN Fails(h, [vm EXCEPT !.note = "missing"], "torn")
    ELSE \/ /\ h.step = "torn"
            /\ \/ At(h, [vm EXCEPT !.note = "clean", !.files = "whole", !.failed = FALSE],
                     "placed")
               \/ Fails(h, vm, "torn")
         \/ /\ h.step = "begun" /\ h.operation \in Placing
            /\ At(h, [vm EXCEPT !.files = "half", !.filesOf = vm.incarnation, !.note = "placing"],
                  "torn")
         \/ /\ h.step /= "torn"
            /\ \/ Fails(h, vm, "undone")
               \/ Done(h, [vm EXCEPT !.guest = @ \/ h.operation = "attach"])

RestoreGoesOn(h) ==
    \/ /\ h.step = "begun"
       /\ \/ Fails(h, vm, "undone")
          \/ /\ vm.guest
             /\ Fails(h, [vm EXCEPT !.note = "not empty", !.guest = FALSE], "torn")
          \/ At(h, [vm EXCEPT !.note = "restoring", !.guest = FALSE], "torn")
    \/ /\ h.step = "torn"
       /\ At(h, [vm EXCEPT !.files = "restored", !.filesOf = vm.incarnation, !.setUp = FALSE],
             "exchanged")
    \/ /\ h.step = "exchanged"
       /\ Done(h, [vm EXCEPT !.marker = None, !.note = "clean", !.failed = FALSE])
    \/ /\ h.step \in {"torn", "exchanged"}
       /\ At(h, [vm EXCEPT !.files = "half", !.filesOf = vm.incarnation, !.failed = TRUE],
             "wiping")
    \/ /\ h.step = "wiping"
       /\ Fails(h, Emptied(vm), "wiped") \/ Fails(h, vm, "torn")

GoesOn(h) ==
    CASE h.operation = "boot"    -> BootGoesOn(h)
      [] h.operation = "restore" -> RestoreGoesOn(h)
      [] OTHER                   -> UseGoesOn(h)

Next ==
    \/ Clone \/ BindTwin \/ VmLost \/ VolumeLost \/ GuestLeaves \/ Die \/ Restart
    \/ vm.alive /\ \E h \in vm.holds : GoesOn(h)
    \/ \E c \in Clients :
        \/ Bind(c) \/ Mismatch(c) \/ AlreadyDone(c) \/ Refused(c)
        \/ Terminate(c) \/ CannotTerminate(c)
        \/ \E op \in Operations \ {"bind", "terminate"} : Begin(c, op)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* What must be true                                                       *)
(***************************************************************************)
Idle == vm.alive /\ vm.holds = {}

NoUseWithoutSetUp ==
    vm.guest \/ (\E h \in vm.holds : h.operation \in Uses)
        => vm.setUp /\ vm.marker = vm.incarnation

ReadyIsNeverDemoted ==
    vm.alive /\ vm.marker /= None /\ vm.marker = vm.incarnation
        => vm.state \notin {"fresh", "provisioning"}

DirtyOnlyRestores ==
    /\ Idle /\ vm.files = "half" => vm.state = "dirty"
    /\ \A h \in vm.holds : h.origin = "dirty" => h.operation = "restore"

OneHolder == Cardinality(vm.holds) = IF vm.alive /\ vm.state \in Held THEN 1 ELSE 0

FailedRestoreLeavesNothing == vm.failed /\ Idle => vm.files = "empty" \/ vm.state = "dirty"

MayRepeat(op) ==
    \/ vm.state \in Held
    \/ AlreadyDoneIn(op, vm.state)
    \/ Allowed(op, vm.state)
    \/ vm.state = "fresh" /\ Allowed(op, "ready")
    \/ vm.state \in {"dirty", "terminated"} /\ op /= "restore"

Repeatable ==
    vm.alive => \A c \in Clients : unanswered[c] = Nobody \/ MayRepeat(unanswered[c])

ClonesDiffer == twin > None => twin /= vm.incarnation

\* What runner.session.adoption.adopted_state makes of the record; our checker asks the real one.
AdoptedFromRecord ==
    CASE vm.terminated                              -> "terminated"
      [] vm.incarnation = None /\ ~vm.terminated    -> "unbound"
      [] vm.incarnation /= None /\ ~vm.terminated   ->
            IF vm.note /= "clean" \/ (vm.marker /= None /\ vm.files = "missing") THEN "dirty"
            ELSE IF vm.marker = vm.incarnation THEN "ready" ELSE "fresh"

RecordTellsState ==
    Idle /\ ~(vm.files = "missing" /\ vm.note = "clean") => vm.state = AdoptedFromRecord

OwnFiles ==
    vm.filesOf = IF vm.files \in {"empty", "missing"} THEN None ELSE vm.incarnation

BoundToUse ==
    /\ vm.state \in {"unbound", "terminated"} <=> vm.incarnation = None
    /\ \A h \in vm.holds : h.expected \in {None, vm.incarnation}
=============================================================================
