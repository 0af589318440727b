------------------------------- MODULE Table -------------------------------
(* Made from runner/session/lifecycle.py by `python -m tests.model.table_tla`; not to be edited. *)

States == {"checkpointing", "dirty", "editing", "executing", "fresh", "provisioning", "ready", "restoring", "terminal", "terminated", "unbound"}

Operations == {"attach", "bind", "boot", "checkpoint", "edit", "execute", "restore", "terminate"}

Held == {"checkpointing", "editing", "executing", "provisioning", "restoring", "terminal"}

\* during "none": one atomic step.  An end "origin" leads to where the operation came from.
Rows == <<
    [operation |-> "bind", during |-> "none",
     states |-> {"terminated", "unbound"},
     ends |-> [done |-> "fresh"]],
    [operation |-> "boot", during |-> "provisioning",
     states |-> {"fresh"},
     ends |-> [done |-> "ready", undone |-> "fresh", died |-> "fresh"]],
    [operation |-> "execute", during |-> "executing",
     states |-> {"ready"},
     ends |-> [done |-> "ready", undone |-> "ready", torn |-> "dirty", died |-> "ready"]],
    [operation |-> "edit", during |-> "editing",
     states |-> {"ready"},
     ends |-> [done |-> "ready", undone |-> "ready", torn |-> "dirty", died |-> "ready"]],
    [operation |-> "checkpoint", during |-> "checkpointing",
     states |-> {"ready"},
     ends |-> [done |-> "ready", undone |-> "ready", torn |-> "dirty", died |-> "ready"]],
    [operation |-> "attach", during |-> "terminal",
     states |-> {"ready"},
     ends |-> [done |-> "ready", undone |-> "ready", torn |-> "dirty", died |-> "ready"]],
    [operation |-> "restore", during |-> "restoring",
     states |-> {"dirty", "fresh", "ready"},
     ends |-> [done |-> "fresh", undone |-> "origin", wiped |-> "fresh", torn |-> "dirty", died |-> "fresh"]],
    [operation |-> "terminate", during |-> "none",
     states |-> {"checkpointing", "dirty", "editing", "executing", "fresh", "provisioning", "ready", "restoring", "terminal"},
     ends |-> [done |-> "terminated", torn |-> "dirty"]],
    [operation |-> "terminate", during |-> "none",
     states |-> {"unbound"},
     ends |-> [done |-> "terminated", undone |-> "unbound"]]
>>
=============================================================================
