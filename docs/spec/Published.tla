----------------------------- MODULE Published -----------------------------
(***************************************************************************)
(* The published lifecycle of an ephemeral dev container: the terminal of  *)
(* the deployed design could attach to a container that nothing had        *)
(* provisioned.  tests/model/published.py is the same model for our own    *)
(* checker; tests/model/test_tlc.py holds the two to the same figures.     *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS Clients, Incarnations, Guarded

None == 0

VARIABLES
    container,    \* asleep | fresh (awake, nobody provisions it) | provisioning | ready
    incarnation,  \* which life of the disk this is; None before the first
    marker,       \* the incarnation that was provisioned; on the disk, so a sleep wipes it
    phase,        \* per client: idle | booting | connecting | attached
    bootedOn,     \* per client: the incarnation its last boot started on
    attachedTo    \* per client: the incarnation its terminal was last attached to

box  == <<container, incarnation, marker>>
vars == <<container, incarnation, marker, phase, bootedOn, attachedTo>>

Init ==
    /\ container = "asleep"
    /\ incarnation = None
    /\ marker = None
    /\ phase = [c \in Clients |-> "idle"]
    /\ bootedOn = [c \in Clients |-> None]
    /\ attachedTo = [c \in Clients |-> None]

Awake == container /= "asleep"

Wake(next) ==
    /\ container = "asleep"
    /\ incarnation < Incarnations
    /\ container' = next
    /\ incarnation' = incarnation + 1
    /\ UNCHANGED marker

(***************************************************************************)
(* Boot                                                                    *)
(***************************************************************************)
StartBoot(c) ==
    /\ phase[c] = "idle"
    /\ \/ Wake("provisioning")
       \/ /\ container \in {"fresh", "provisioning"}
          /\ container' = "provisioning"
          /\ UNCHANGED <<incarnation, marker>>
       \/ /\ container = "ready"
          /\ UNCHANGED box
    /\ phase' = [phase EXCEPT ![c] = "booting"]
    /\ bootedOn' = [bootedOn EXCEPT ![c] = incarnation']
    /\ UNCHANGED attachedTo

OnItsIncarnation(c) == Awake /\ bootedOn[c] = incarnation

FinishBoot(c) ==
    /\ phase[c] = "booting"
    /\ OnItsIncarnation(c)
    /\ container' = "ready"
    /\ marker' = bootedOn[c]
    /\ phase' = [phase EXCEPT ![c] = "connecting"]
    /\ UNCHANGED <<incarnation, bootedOn, attachedTo>>

BootLost(c) ==
    /\ phase[c] = "booting"
    /\ ~OnItsIncarnation(c)
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ UNCHANGED <<box, bootedOn, attachedTo>>

(***************************************************************************)
(* Terminal                                                                *)
(***************************************************************************)
Attach(c) ==
    /\ phase[c] = "connecting"
    /\ phase' = [phase EXCEPT ![c] = "attached"]
    /\ attachedTo' = [attachedTo EXCEPT ![c] = incarnation']
    /\ UNCHANGED bootedOn

AttachReady(c) ==
    /\ container = "ready"
    /\ UNCHANGED box
    /\ Attach(c)

AttachGuarded(c) ==
    /\ Guarded
    /\ phase[c] = "connecting"
    /\ container /= "ready"
    /\ phase' = [phase EXCEPT ![c] = "idle"]
    /\ UNCHANGED <<box, bootedOn, attachedTo>>

AttachWakesFresh(c) ==
    /\ ~Guarded
    /\ Wake("fresh")
    /\ Attach(c)

AttachAwakeNotReady(c) ==
    /\ ~Guarded
    /\ container \in {"fresh", "provisioning"}
    /\ UNCHANGED box
    /\ Attach(c)

Stands(c) == Awake /\ attachedTo[c] = incarnation

Reconnect(c) ==
    /\ phase[c] = "attached"
    /\ ~Stands(c)
    /\ phase' = [phase EXCEPT ![c] = "connecting"]
    /\ UNCHANGED <<box, bootedOn, attachedTo>>

Sleep ==
    /\ Awake
    /\ container' = "asleep"
    /\ marker' = None
    /\ UNCHANGED <<incarnation, phase, bootedOn, attachedTo>>

Next ==
    \/ Sleep
    \/ \E c \in Clients :
        \/ StartBoot(c) \/ FinishBoot(c) \/ BootLost(c)
        \/ AttachReady(c) \/ AttachGuarded(c) \/ AttachWakesFresh(c) \/ AttachAwakeNotReady(c)
        \/ Reconnect(c)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Whoever has a terminal on the container that runs now has one on a      *)
(* provisioned container.                                                  *)
(***************************************************************************)
NoAttachWithoutSetup ==
    Awake => \A c \in Clients :
        phase[c] = "attached" /\ attachedTo[c] = incarnation => marker = incarnation

(***************************************************************************)
(* A container is ready only by a boot that started on this incarnation.   *)
(***************************************************************************)
ReadyIsHonest == container = "ready" => marker = incarnation
=============================================================================
