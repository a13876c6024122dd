/** A gateway with a scripted model and a scripted evaluator behind it. */
import type { Config } from '../../src/process/config/settings.ts'
import { startGateway, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import { ScriptedProvider } from './provider.ts'

export const TIMEOUT_MS = 5_000
export const MODEL = 'acme/model'
/** The same model with a second endpoint behind the first. */
export const BACKED = 'acme/backed'
const PRICING = { prompt: '0.000001', completion: '0.00001' }

interface AlignedGateway {
  readonly gateway: TestGateway
  readonly provider: ScriptedProvider
  close(): Promise<void>
}

export async function startAligned(options: TestGatewayOptions = {}): Promise<AlignedGateway> {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const endpoint = (upstreamModel: string) => ({
    provider: 'acme',
    upstreamModel,
    pricing: PRICING,
    zdr: true,
  })
  const models: Config['models'] = [
    { id: MODEL, name: 'Model', endpoints: [endpoint('model')] },
    { id: BACKED, name: 'Backed', endpoints: [endpoint('model'), endpoint('backup')] },
    { id: 'acme/judge', name: 'Judge', endpoints: [endpoint('judge')] },
  ]
  const gateway = await startGateway({
    alignment: { evaluator: { model: 'acme/judge' }, hipaaWorkspaces: [], timeoutMs: TIMEOUT_MS },
    ...options,
    providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
    models,
  })
  return {
    gateway,
    provider,
    async close() {
      await gateway.close()
      await provider.close()
    },
  }
}
