/** Custom tools of the client at every provider: as they are, or as functions with one text argument. */
import t from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { grammarViolations } from '../support/event-grammar.ts'
import { parseEventStream, startGateway } from '../support/gateway.ts'

const TOOL = {
  type: 'custom',
  name: 'run_code',
  description: 'Runs code.',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: "print" WORD' },
}

t.test('a call of a custom tool has one form, whatever the provider knows', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  for (const model of ['sim/call', 'sim/chat-call', 'sim/messages-call', 'sim/gemini-call']) {
    const ask = async (fields: object = {}) =>
      await gateway.respond({ model, input: 'Print hello', tools: [TOOL], ...fields })
    const whole = (await (await ask()).json()) as ResponseResource
    t.match(whole.output, [{ type: 'custom_tool_call', name: 'run_code', status: 'completed' }], model)
    const { input } = whole.output[0] as unknown as { input: string }
    t.match(input, /^Print/, model)

    const reply = await ask({ stream: true, debug: { echo_upstream_body: true } })
    const events = parseEventStream(await reply.text())
    t.same(grammarViolations(events), [], model)
    const { response } = events.at(-1) as StreamEvent & { response: ResponseResource }
    t.match(response.output, [{ type: 'custom_tool_call', input }], model)
    t.ok(events.some(({ type }) => type === 'response.custom_tool_call_input.done'))
    t.match(JSON.stringify(events[0]), /start: .*print/, `${model}: the grammar goes along`)
    t.match(response.tools, [TOOL], 'the request is echoed as it came')

    const history = [
      { role: 'user', content: 'Print hello' },
      ...whole.output,
      {
        type: 'custom_tool_call_output',
        call_id: (whole.output[0] as { call_id?: string }).call_id,
        output: 'hello',
      },
    ]
    const next = (await (await ask({ input: history })).json()) as ResponseResource
    t.match(JSON.stringify(next.output), /The tool answered: hello/, model)

    const forced = (await (
      await ask({ tool_choice: { type: 'custom', name: 'run_code' } })
    ).json()) as ResponseResource
    t.match(forced.output, [{ type: 'custom_tool_call' }], `${model}: forced`)
    const allowed = { type: 'allowed_tools', mode: 'required', tools: [{ type: 'custom', name: 'run_code' }] }
    const chosen = (await (await ask({ tool_choice: allowed })).json()) as ResponseResource
    t.match(chosen.output, [{ type: 'custom_tool_call' }], `${model}: allowed`)
  }
})

t.test('beside a server tool and a function, each call keeps its kind', async t => {
  const gateway = await startGateway()
  t.teardown(gateway.close)
  const tools = [
    TOOL,
    { type: 'gateway:datetime' },
    { type: 'function', name: 'f', parameters: { type: 'object' } },
  ]
  const response = (await (
    await gateway.respond({ model: 'sim/messages-call-2', input: 'Print', tools })
  ).json()) as ResponseResource
  t.same(
    response.output.map(({ type }) => type),
    ['custom_tool_call', 'custom_tool_call'],
  )
})
