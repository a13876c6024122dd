/** The contract of paused providers: a second pause replaces the first, and ended ones are removed. */
import type { Test } from 'tap'
import type { Opened } from '../contract.ts'

export async function pauseContract(t: Test, opened: Opened): Promise<void> {
  await t.test('pauses are kept by provider, ended by name, and removed by time', async t => {
    const { pauses } = await opened(t)
    const sinceMs = 1_800_000_000_123
    const of = (provider: string, untilMs: number) => ({
      provider,
      sinceMs,
      untilMs,
      reason: null,
      actor: 'sk-gw-mgmt-1…',
    })
    await pauses.put(of('openai', sinceMs + 10))
    await pauses.put(of('acme', sinceMs + 20))
    await pauses.put({ ...of('openai', sinceMs + 30), reason: 'incident 4711' })
    t.same(await pauses.list(), [
      of('acme', sinceMs + 20),
      { ...of('openai', sinceMs + 30), reason: 'incident 4711' },
    ])
    t.equal(await pauses.end('mistral'), false)
    t.equal(await pauses.end('openai'), true)
    await pauses.prune(sinceMs + 19)
    t.equal((await pauses.list()).length, 1)
    await pauses.prune(sinceMs + 20)
    t.same(await pauses.list(), [])
  })
}
