/** Text that comes back, ten thousand times: through every door and format, streamed and whole, cut anywhere. */
import t from 'tap'
import { logged, runMaskRounds, startMaskWorld } from '../support/mask-rounds.ts'

const ROUNDS = 10_000
const SEED = 1_000_000

t.test('10,000 generated texts with 1 to 30 findings come back as they were', async t => {
  const world = await startMaskWorld(t)
  await runMaskRounds(world, ROUNDS, SEED)
  t.notMatch(logged(world.gateway), /\.example/)
})
