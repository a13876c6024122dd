/** Containers are those of the whole process: whichever thread serves a request, it finds them. */
import t from 'tap'
import { startGatewayProcess } from '../support/gateway-process.ts'
import { ScriptedProvider } from '../support/provider.ts'

/** Of which each serve thread gets some, as the kernel spreads connections. */
const REQUESTS = 8

t.test('every serve thread sees the same container, and a stop leaves no process', async t => {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  t.teardown(() => provider.close())
  const models = Array.from({ length: REQUESTS }, (_, at) => ({
    id: `acme/m${at}`,
    name: 'Model',
    endpoints: [{ provider: 'acme', upstreamModel: `m${at}`, pricing: { prompt: '0', completion: '0' } }],
  }))
  const gateway = await startGatewayProcess(
    t,
    {
      providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
      models,
      tools: { sandbox: { engine: 'embedded', running: 2 } },
    },
    { GATEWAY_SERVE_THREADS: '2' },
  )
  const ask = async (at: number, command: string): Promise<unknown> => {
    const call = { name: 'shell', arguments: JSON.stringify({ commands: [command] }) }
    provider.script(`m${at}`, [{ calls: [call] }, { text: 'Done.' }])
    const environment = { type: 'container_reference', container_id: 'shared' }
    const reply = await fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      // A new connection each time: the kernel spreads them over the threads.
      headers: {
        authorization: `Bearer ${gateway.apiKey}`,
        'content-type': 'application/json',
        connection: 'close',
      },
      body: JSON.stringify({
        model: `acme/m${at}`,
        input: 'x',
        tools: [{ type: 'gateway:shell', parameters: { environment } }],
      }),
    })
    const { output } = (await reply.json()) as { output: readonly Record<string, unknown>[] }
    return output[0]?.['output']
  }
  t.match(await ask(0, 'echo one > file; cat file'), [{ stdout: 'one\n' }])
  const all = Array.from({ length: REQUESTS - 1 }, (_, at) => ask(at + 1, 'cat file'))
  for (const output of await Promise.all(all)) t.match(output, [{ stdout: 'one\n' }])
  t.equal(await gateway.stop(), 0)
})
