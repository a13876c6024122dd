/** One attempt: what it keeps of a reply beside the answer itself. */
import t from 'tap'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import { scriptedEndpoint, scriptedExchange, startScripted } from '../../support/scripted-attempt.ts'

const KEY = 'key-0123456789abcdef0123456789abcdef'

/** What is kept of a reply with these names. */
async function kept(id: string, finish: string, tier: string) {
  const endpoint = scriptedEndpoint('openai-chat')
  const { run, record, handler, over } = startScripted(
    { ...endpoint, provider: { ...endpoint.provider, auth: 'bearer', apiKey: KEY } },
    new FinalSink(),
    scriptedExchange({ stream: false }),
  )
  const choice = { index: 0, message: { role: 'assistant', content: 'word' }, finish_reason: finish }
  handler.onData(
    Buffer.from(JSON.stringify({ id, object: 'chat.completion', choices: [choice], service_tier: tier })),
  )
  handler.onEnd()
  await over
  return [record.upstreamId, run.figures.finish?.native, run.figures.finish?.serviceTier]
}

t.test('a name that the provider chose is kept, unless it repeats the key', async t => {
  t.same(await kept('chatcmpl-1', 'stop', 'default'), ['chatcmpl-1', 'stop', 'default'])
  t.same(await kept(`c-${KEY}`, 'stop', 'default'), [null, 'stop', 'default'])
  t.same(await kept('chatcmpl-1', `stop-${KEY}`, 'default'), ['chatcmpl-1', null, 'default'])
  t.same(await kept('chatcmpl-1', 'stop', KEY.toUpperCase()), ['chatcmpl-1', 'stop', null])
})

t.test('of service tiers only known words are kept', async t => {
  for (const tier of ['flex', 'priority', 'standard', 'on_demand'])
    t.same(await kept('chatcmpl-1', 'stop', tier), ['chatcmpl-1', 'stop', tier])
  t.same(await kept('chatcmpl-1', 'stop', 'ann@example.com'), ['chatcmpl-1', 'stop', null])
})
