import t from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../../src/apps/simulator/rows.ts'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Delta } from '../../../src/formats/format.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import { type Endpoint, textFormat } from '../../../src/protocol/provider.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { SseParser } from '../../../src/providers/upstream/sse.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { createFaultySim } from '../../support/sim-faults.ts'

const sim = createFaultySim()
const { url } = await sim.listen()
t.teardown(() => sim.close())

interface Said {
  text: string
  refusal: string
  reasoning: string
  calls: { name: string; arguments: unknown }[]
  finish: string
  usage: unknown
}

/** Asks the simulated provider as the gateway would: encoded and decoded by the format itself. */
async function ask(endpoint: Endpoint, body: Record<string, unknown>, stream: boolean): Promise<Said> {
  const format = FORMATS[textFormat(endpoint)]
  const request = parseResponsesRequest({ model: endpoint.modelId, ...body })
  const wire = format.encode({ request, stream, endUser: null }, endpoint)
  const response = await fetch(endpoint.provider.baseUrl + wire.path, {
    method: 'POST',
    headers: { ...wire.headers, 'content-type': 'application/json', authorization: 'Bearer x' },
    body: JSON.stringify(wire.body),
  })
  const bytes = Buffer.from(await response.arrayBuffer())
  if (!response.ok) throw format.failure(response.status, bytes.toString())
  const deltas: Delta[] = []
  const decoder = format.decoder(delta => deltas.push(delta))
  if (format.framing(stream) === 'json') decoder.frame('', bytes.toString())
  else {
    const parser = new SseParser((event, data) => decoder.frame(event, data))
    parser.push(bytes)
    parser.end()
  }
  decoder.end()
  return gathered(deltas)
}

function gathered(deltas: readonly Delta[]): Said {
  const said: Said = { text: '', refusal: '', reasoning: '', calls: [], finish: '', usage: null }
  const calls = new Map<number, { name: string; text: string }>()
  for (const delta of deltas) {
    if (delta.kind === 'text') said.text += delta.text
    else if (delta.kind === 'refusal') said.refusal += delta.text
    else if (delta.kind === 'reasoning') said.reasoning += delta.text
    else if (delta.kind === 'open' && delta.start.type === 'function_call')
      calls.set(delta.item, { name: delta.start.name, text: '' })
    else if (delta.kind === 'arguments') {
      const call = calls.get(delta.item)
      if (call !== undefined) call.text += delta.text
    } else if (delta.kind === 'finish') said.finish = delta.reason
    else if (delta.kind === 'usage') said.usage = delta.usage
  }
  said.calls = [...calls.values()].map(call => ({
    name: call.name,
    arguments: JSON.parse(call.text) as unknown,
  }))
  return said
}

const TEXT = 'Grüße, 世界! 👩‍👩‍👧 two  spaces\nend'
const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
const TOOLS = [{ type: 'function', name: 'weather', parameters: PARAMETERS }]

for (const format of SIM_FORMATS) {
  const endpointOf = (model: string): Endpoint => {
    const catalog = createCatalog({ providers: [simProvider(url)], models: [simModel(model, format)] })
    const endpoint = catalog.models()[0]?.endpoints[0]
    if (endpoint === undefined) throw new Error('no endpoint')
    return endpoint
  }

  for (const stream of [true, false]) {
    t.test(
      `${format} ${stream ? 'streamed' : 'whole'}: our own decoder understands every behaviour`,
      async t => {
        const echo = await ask(endpointOf('echo'), { input: TEXT }, stream)
        t.match(echo, { text: TEXT, finish: 'stop', usage: { inputTokens: 6, reasoningTokens: 0 } })

        const call = await ask(endpointOf('call-2'), { input: 'Paris', tools: TOOLS }, stream)
        t.equal(call.finish, 'tool_calls')
        const wanted = { name: 'weather', arguments: { city: 'Paris' } }
        t.same(call.calls, [wanted, wanted])

        const after = await ask(
          endpointOf('call'),
          {
            tools: TOOLS,
            input: [
              { role: 'user', content: 'Paris' },
              { type: 'function_call', call_id: 'c1', name: 'weather', arguments: '{"city":"Paris"}' },
              { type: 'function_call_output', call_id: 'c1', output: 'sunny' },
            ],
          },
          stream,
        )
        t.match(after, { text: 'The tool answered: sunny', finish: 'stop', calls: [] })

        for (const model of ['reason', 'reason-summary']) {
          const reasoned = await ask(endpointOf(model), { input: 'hi' }, stream)
          t.match(
            reasoned,
            { text: 'hi', reasoning: /Repeating it is the right answer\.$/, finish: 'stop' },
            model,
          )
        }

        const refused = await ask(endpointOf('refuse'), { input: 'hi' }, stream)
        t.match(refused.text + refused.refusal, 'I cannot help with that request.')

        const json = await ask(
          endpointOf('json'),
          { input: 'Paris', text: { format: { type: 'json_schema', name: 'w', schema: PARAMETERS } } },
          stream,
        )
        t.same(JSON.parse(json.text), { city: 'Paris' })

        const verdict = await ask(
          endpointOf('judge'),
          {
            instructions: 'The rules:\n1. Never say "pear"\n2. Anything [[p=0.42]]',
            input: 'a pear',
            text: { format: { type: 'json_schema', name: 'alignment_verdict', schema: { type: 'object' } } },
          },
          stream,
        )
        t.same(JSON.parse(verdict.text), { probabilities: [0.95, 0.42] })

        const cut = await ask(endpointOf('write-50'), { input: 'hi', max_output_tokens: 20 }, stream)
        t.match(cut, { finish: 'length', usage: { outputTokens: 20 } })
      },
    )

    t.test(`${format} ${stream ? 'streamed' : 'whole'}: no broken reply passes for a whole one`, async t => {
      // A whole reply with content was not cut, unless its own status says so.
      const needsFinish = stream || format === 'openai-responses'
      const kinds = [
        ...(needsFinish ? ['no-finish'] : []),
        'cut-end',
        'cut-bare',
        'error-in-stream',
        'error-first',
        'error-under-200',
        'html',
      ]
      for (const kind of [...kinds, 'bad-sse', 'empty-reply', 'status', 'status-429', 'status-529']) {
        const asked = ask(endpointOf(`fail-${kind}`), { input: 'hi' }, stream)
        t.type(await asked.catch(error => error), GatewayError, `fail-${kind}`)
      }
    })
  }
}
