"""A request's files into the place where it will run: resolved first, then primed."""

from __future__ import annotations

import asyncio

from runner.errors import InsufficientStorage
from runner.execution.request import Plan
from runner.execution.space import Space
from runner.finish import finish
from runner.inputs.resolve import Resolver
from runner.longwork import SHORT_BYTES, Lanes
from runner.workspace.priming import Inline, Input


class Intake:
    """Where inputs come from."""

    def __init__(self, resolver: Resolver, lanes: Lanes) -> None:
        self._resolver = resolver
        self._lanes = lanes

    async def prime(self, plan: Plan, space: Space) -> bool:
        """True: all of the request's files are in place. Or an error, and nothing has changed.

        When the disk is full it is tried once more without what the cache of inputs can spare.
        """
        inline = tuple(Input(file.path, Inline(file.content)) for file in plan.inline)
        return await self._prime(plan, space, inline, last=False) or await self._prime(
            plan, space, inline, last=True
        )

    async def _prime(
        self, plan: Plan, space: Space, inline: tuple[Input, ...], *, last: bool
    ) -> bool:
        resolving = self._resolver.resolve(
            plan.referenced,
            grant=plan.egress_grant,
            beside=None if space.lasting else [file.path for file in plan.inline],
        )
        async with resolving as resolved:
            inputs = (*inline, *resolved.inputs)
            try:
                if sum(each.source.size for each in inputs) <= SHORT_BYTES:
                    await finish(asyncio.to_thread(space.prime, inputs, resolved.references))
                else:
                    lane = self._lanes.of(lasting=space.lasting)
                    await lane.run(lambda stop: space.prime(inputs, resolved.references, stop))
            except InsufficientStorage:
                # In here, so that what this request needs of the cache stays.
                if last or not await self._resolver.make_room():
                    raise
                return False
        return True
