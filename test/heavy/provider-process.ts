/** Starts the providers of provider-main.ts next to the gateway, and returns their configuration. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { SimFormat } from '../../src/apps/simulator/ask.ts'
import { simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import type { SimState } from '../../src/apps/simulator/simulator.ts'

interface ProviderState {
  readonly requests: number
  readonly open: number
  /** Replies whose reader went away. */
  readonly closedEarly: number
  readonly sentBytes: number
  /** How long a reader that was hung up on had taken nothing, at most, in milliseconds. */
  readonly longestWaitMs: number
  readonly sim: SimState
}

export interface ProviderProcess {
  /**
   * Rows for the configuration file. A model is reached as `sim/NAME` or, with the slug that was given at the start,
   * as `stamp/FORMAT-NAME`.
   */
  settings(models: { readonly sim?: readonly string[]; readonly stamp?: readonly string[] }): {
    readonly providers: readonly unknown[]
    readonly models: readonly unknown[]
  }
  state(): Promise<ProviderState>
}

const FORMATS: readonly SimFormat[] = ['openai-responses', 'openai-chat']

export async function startProviders(t: Test, slug = 'stamp'): Promise<ProviderProcess> {
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', join(import.meta.dirname, 'provider-main.ts')],
    { stdio: ['pipe', 'pipe', 'inherit'] },
  )
  const closed = once(child, 'close')
  t.teardown(async () => {
    child.stdin.end()
    await closed
  })
  const [line] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string]
  const { simUrl, stampUrl } = JSON.parse(line) as { simUrl: string; stampUrl: string }
  return {
    settings: ({ sim = [], stamp = [] }) => ({
      providers: [
        ...(sim.length === 0 ? [] : [simProvider(simUrl)]),
        { slug, name: 'Stamp', format: 'openai-responses', baseUrl: stampUrl, apiKey: 'none' },
      ],
      models: [
        ...sim.map(name => simModel(name, 'openai-responses')),
        ...stamp.flatMap(name =>
          FORMATS.map(format => ({
            id: `${slug}/${format}-${name}`,
            endpoints: [{ provider: slug, upstreamModel: name, format }],
          })),
        ),
      ],
    }),
    state: async () => (await (await fetch(`${stampUrl}/state`)).json()) as ProviderState,
  }
}
