/** What a caller pays who leaves: what the provider bills, whether its usage comes in time or has to be estimated. */
import t, { type Test } from 'tap'
import { until } from '../support/patience.ts'
import { startLeaving as start, turn } from '../support/world.ts'

const KOREAN = '안녕하세요'.repeat(4)
const USAGE = {
  prompt_tokens: 10,
  completion_tokens: 9_980,
  completion_tokens_details: { reasoning_tokens: 8_000 },
}
/** A caller has left after the first words of its answer. */
async function left(t: Test, more: object) {
  const s = await start(t, null)
  const asked = await s.ask(more, 'output_text.delta')
  const reply = await s.provider.reply(0)
  reply.say({ content: KOREAN })
  await asked.seen
  await asked.leave()
  return { ...s, reply }
}

t.test('who leaves after the last word is charged what the provider told a little later', async t => {
  const { reply, ...s } = await left(t, { reasoning: { effort: 'high' } })
  t.equal(s.server.openRequests, 1, 'its place is kept')
  t.equal(reply.closed, false)
  reply.finish(USAGE)
  t.match(await s.record(), {
    outcome: 'aborted',
    cancelled: true,
    accounting: 'exact',
    tokens_prompt: 10,
    tokens_completion: 9_980,
    total_cost: 0.13973,
  })
})

t.test('a provider that is silent is listened to for two seconds; then script and effort tell', async t => {
  const { reply, ...s } = await left(t, { reasoning: { effort: 'high' } })
  s.clock.advance(1_999)
  await turn()
  t.equal(await s.recorded(), 0)
  s.clock.advance(1)
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), {
    outcome: 'aborted',
    error: 'client_closed',
    accounting: 'estimated',
    tokens_prompt: 1,
    tokens_completion: 20 + 6_553,
    native_tokens_reasoning: 6_553,
  })
})

t.test('a provider that goes on is closed at its next word', async t => {
  const { reply, ...s } = await left(t, {})
  t.equal(reply.closed, false)
  reply.say({ content: 'word' })
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), { outcome: 'aborted', accounting: 'estimated', tokens_completion: 21 })
})

t.test('before the first word it is closed at once', async t => {
  const s = await start(t, null)
  const asked = await s.ask({ reasoning: { effort: 'high' } }, '')
  const reply = await s.provider.reply(0)
  await asked.leave()
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), {
    outcome: 'aborted',
    accounting: 'estimated',
    tokens_prompt: 1,
    tokens_completion: 0,
  })
})

t.test('where a provider is cancelled, nobody listens', async t => {
  const s = await start(t, 'cancel')
  const asked = await s.ask({}, 'output_text.delta')
  const reply = await s.provider.reply(0)
  reply.say({ content: KOREAN })
  await asked.seen
  await asked.leave()
  await until('the end of the reply', () => reply.closed)
  t.match(await s.record(), { outcome: 'aborted', accounting: 'estimated', tokens_completion: 20 })
})
