/** A search among tools that the client runs itself, as Codex does: models without one see a function. */
import t from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'

const SEARCH = {
  type: 'tool_search',
  execution: 'client',
  description: 'Finds tools.',
  parameters: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
}
const FOUND = {
  type: 'function',
  name: 'get_weather',
  parameters: { type: 'object', properties: {} },
  defer_loading: true,
}

t.test('the search comes back as its own item, and what it found can be called', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  for (const model of ['sim/chat-call', 'sim/messages-call', 'sim/gemini-call']) {
    const ask = async (fields: object = {}) =>
      await gateway.respond({ model, input: 'weather', tools: [SEARCH], ...fields })
    const whole = (await (await ask()).json()) as ResponseResource
    t.match(
      whole.output,
      [
        {
          type: 'tool_search_call',
          execution: 'client',
          status: 'completed',
          arguments: { query: /^weather/ },
        },
      ],
      model,
    )
    const events = parseEventStream(await (await ask({ stream: true })).text())
    t.same(grammarViolations(events), [], model)
    const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
    t.match(response.output, [{ type: 'tool_search_call' }], `${model}: streamed`)
    t.same(response.tools, [SEARCH], 'the request is echoed as it came')

    const { call_id } = whole.output[0] as { call_id?: string }
    const history = [
      { role: 'user', content: 'weather' },
      ...whole.output,
      { type: 'tool_search_output', call_id, execution: 'client', status: 'completed', tools: [FOUND] },
      { role: 'user', content: 'Now call it' },
    ]
    const fields = {
      input: history,
      tool_choice: {
        type: 'allowed_tools',
        mode: 'required',
        tools: [{ type: 'function', name: 'get_weather' }],
      },
      debug: { echo_upstream_body: true },
      stream: true,
    }
    const next = parseEventStream(await (await ask(fields)).text())
    const sent = JSON.stringify(next[0])
    t.match(sent, /get_weather/, `${model}: the tool that was found is declared`)
    t.notMatch(sent, /defer_loading/, `${model}: and no longer deferred`)
    // This simulated model answers results of tools first.
    if (model === 'sim/messages-call') continue
    const last = next.at(-1) as StreamEvent & { response: ResponseResource }
    t.match(last.response.output, [{ type: 'function_call', name: 'get_weather' }], model)
  }
})

t.test('a provider with such a search gets it as it came', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  const reply = await gateway.respond({
    model: 'sim/call',
    input: [
      { role: 'user', content: 'weather' },
      {
        type: 'tool_search_call',
        call_id: 'c1',
        execution: 'client',
        status: 'completed',
        arguments: { query: 'x' },
      },
      { type: 'tool_search_output', call_id: 'c1', execution: 'client', status: 'completed', tools: [FOUND] },
    ],
    tools: [SEARCH],
    stream: true,
    debug: { echo_upstream_body: true },
  })
  t.equal(reply.status, 200)
  const [first] = parseEventStream(await reply.text())
  const sent = JSON.stringify(first)
  t.match(sent, /"type":"tool_search","execution":"client"/)
  t.match(sent, /"type":"tool_search_output"/)
})

t.test('a deferred function needs a search, whoever runs it', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  const plain = { type: 'function', name: 'f', parameters: { type: 'object' } }
  const ask = async (tools: readonly object[]) =>
    (await gateway.respond({ model: 'sim/chat-call', input: 'Hi', tools })).status
  t.equal(await ask([SEARCH, plain, FOUND]), 200)
  t.equal(await ask([plain, FOUND]), 400)
})
