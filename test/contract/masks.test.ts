/** Text that comes back: what a guardrail masks is seen by nobody but the caller, who gets it whole. */
import t from 'tap'
import { runMaskRounds, startMaskWorld } from '../support/mask-rounds.ts'
import { search } from '../support/property.ts'

t.test('through every door and format, streamed and whole, cut anywhere', async t => {
  const world = await startMaskWorld(t)
  const { numRuns, seed } = search(240)
  await runMaskRounds(world, numRuns, seed)
})
