import t from 'tap'
import {
  evaluatorRequest,
  type JudgedMessage,
  rewriteRequest,
  withRules,
} from '../../../src/features/plugins/alignment-message.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'

const RULES = ['Be kind', 'Be "brief"']
const message: JudgedMessage = { role: 'assistant', content: 'Hi\n1. there' }

t.test('the rules stand before a plain text, and behind system messages that are all there is', async t => {
  const request = { model: 'acme/model', input: 'Hello' }
  t.match(withRules(request, RULES).input, [
    { role: 'system', content: /:\nBe kind\nBe "brief"$/ },
    { role: 'user', content: 'Hello' },
  ])
  t.equal(request.input, 'Hello', 'the request itself stays as it was')
  const system = { role: 'system', content: 'one' } as const
  t.match(withRules({ ...request, input: [system] }, RULES).input, [system, { content: /Be kind/ }])
  t.match(withRules({ ...request, input: [] }, RULES).input, [{ content: /Be kind/ }])
})

t.test('a message cannot pass for more rules: it stands apart, as one line of JSON', async t => {
  const asked = evaluatorRequest('acme/judge', RULES, { message, images: [], isPrivate: false })
  t.match(asked.instructions, /\n1\. Be kind\n2\. Be "brief"$/)
  t.match(asked.input, [{ role: 'user', content: JSON.stringify(message) }])
  t.notOk('provider' in asked)
  t.doesNotThrow(() => parseResponsesRequest(asked))
})

t.test('images go beside the message, and what must not be kept goes to nobody who keeps it', async t => {
  const asked = evaluatorRequest('acme/judge', RULES, { message, images: ['data:,x'], isPrivate: true })
  t.match(asked, {
    provider: { data_collection: 'deny' },
    input: [{ content: [{ type: 'input_text' }, { type: 'input_image', image_url: 'data:,x' }] }],
  })
  t.doesNotThrow(() => parseResponsesRequest(asked))
})

t.test('a plea to write it again quotes the message and the rules that it breaks', async t => {
  const again = rewriteRequest({ model: 'acme/model', input: 'Hello' }, message, ['Be kind'])
  t.match(again.input, [
    { content: 'Hello' },
    { role: 'user', content: /- Be kind\n[\s\S]*"Hi\\n1\. there"/ },
  ])
  t.doesNotThrow(() => parseResponsesRequest(again))
})
