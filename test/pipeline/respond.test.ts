/** A request from admission to its record, without a front: real store, limits and guardrails, a scripted provider. */
import t from 'tap'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import { startAsking } from './asking-gateway.ts'

t.test('a request is answered, and its record is written before its end is told', async t => {
  const { call, gateway, provider, records } = await startAsking(t)
  provider.script('side', [{ text: 'Hello' }])
  const sink = new FinalSink()
  const outcome = await gateway.respond(call(), sink)
  t.match(sink.response, { status: 'completed', output: [{ content: [{ text: 'Hello' }] }] })
  t.match(outcome, { answered: true })
  t.match(await records(), [{ id: 'gen-1-outer', outcome: 'completed', outputTokens: 5 }])
})

t.test('a failure is in the outcome, and has its record', async t => {
  const { call, gateway, provider, records } = await startAsking(t)
  provider.script('side', [{ status: 400 }])
  const sink = new FinalSink()
  t.match(await gateway.respond(call(), sink), {
    answered: false,
    error: { code: 'invalid_request', message: /Scripted failure/ },
  })
  t.equal(sink.response, null)
  t.equal(provider.asked.length, 1, 'what is refused is not tried elsewhere')
  t.match(await records(), [{ id: 'gen-1-outer', outcome: 'failed' }])
})

t.test('a guardrail comes before routing: nobody is asked', async t => {
  const { call, gateway, guard, provider } = await startAsking(t)
  await guard({ contentFilters: [{ pattern: 'Outer', action: 'block', label: 'word' }] })
  t.match(await gateway.respond(call(), new FinalSink()), {
    answered: false,
    error: { code: 'permission_denied', message: /blocked/ },
  })
  t.equal(provider.asked.length, 0)
})

t.test('a check tells who would be asked, asks nobody and leaves no record', async t => {
  const { call, check, guard, provider, records } = await startAsking(t)
  t.equal((await check(call()))?.endpoint.upstreamModel, 'side')
  t.equal((await check(call({ provider: { zdr: true } })))?.endpoint.upstreamModel, 'kept')
  await t.rejects(check(call({ model: 'acme/none' })), { code: 'model_not_found' })
  await guard({ contentFilters: [{ pattern: 'Outer', action: 'block', label: 'word' }] })
  await t.rejects(check(call()), { code: 'permission_denied' })
  t.equal(provider.asked.length, 0)
  t.same(await records(), [])
})

t.test('a check refuses what the limits of the key leave no room for', async t => {
  const { call, check } = await startAsking(t, 0)
  await t.rejects(check(call()), { code: 'payment_required' })
})
