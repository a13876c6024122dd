/** What only clients of POST /chat/completions are told: refusals in their own field, and log probabilities. */
import t from 'tap'
import { chat, choiceOf, messageOf } from '../support/dialect-clients.ts'
import { goldenReply } from '../support/provider.ts'
import { startDialectGateway } from '../support/world.ts'

const { gateway, replay } = await startDialectGateway(t)

t.test('a refusal stands in its own field', async t => {
  for (const format of ['openai-chat', 'openai-responses']) {
    replay.next.push(goldenReply(format, 'refusal'))
    const completion = await chat.complete(gateway, { model: `replay/${format}`, stream: true })
    t.match(messageOf(completion), { content: null, refusal: /I ca/ })
    t.match(choiceOf(completion), { finish_reason: 'stop' })
  }
})

t.test('log probabilities reach the caller, and the wish for them the provider', async t => {
  replay.next.push(goldenReply('openai-chat', 'logprobs'))
  const asking = { model: 'replay/openai-chat', stream: true, logprobs: true, top_logprobs: 1 }
  const completion = await chat.complete(gateway, asking)
  t.match(choiceOf(completion)['logprobs'], {
    content: [{ token: 'Hi', logprob: -0.5, bytes: [72, 105], top_logprobs: [{ token: 'Hi' }] }],
    refusal: null,
  })
  t.match(replay.asked.at(-1), { logprobs: true, top_logprobs: 1 })
})
