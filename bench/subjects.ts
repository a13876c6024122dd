/** A subject of a measurement, between load and upstream: it has a port and processes, and can be ended. */
import type { Scenario, SubjectName } from './scenarios.ts'
import type { Wire } from './wire.ts'

/** One subject that is running. */
export interface Subject {
  readonly name: SubjectName
  readonly version: string
  /** Its processes, for their cost. */
  pids(): readonly number[]
  /** How the load asks it in this scenario. */
  target(scenario: Scenario): Target
  /** Where lag.ts notes how late its event loop is; only where that is watched. */
  readonly lagFile?: string
  /** How its task workers are kept busy beside the load; only where that is its part. */
  readonly guarded?: Guarded
  /** Told of the measured window; only of a gateway that is profiled. */
  readonly watch?: Watch
  stop(): Promise<void>
}

export interface Watch {
  begin(): unknown
  end(): unknown
}

export interface Guarded {
  /** Of requests that the task workers look at. */
  readonly headers: Readonly<Record<string, string>>
  /** The task workers that run now. */
  threads(): readonly TaskThread[]
}

/** A thread of a process, as /proc names it. */
export interface TaskThread {
  readonly pid: number
  readonly tid: number
}

export interface Target {
  readonly port: number
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** What its clients are answered in. */
  readonly wire: Wire
  /** What stands before a plan in the model name. */
  readonly modelPrefix: string
}

/** What every subject is started with. */
export interface Bench {
  /** For configurations, logs and databases of this run. */
  readonly folder: string
  readonly upstream: { readonly plain: number; readonly tls: number; readonly http2: number }
  /** PEM file of the upstream's own certificate. */
  readonly certificate: string
  readonly proxyCore: number | null
  /** Model names that will be asked for, without prefix. */
  readonly plans: readonly string[]
  /** Key of the load's clients; all subjects get it in the same header. */
  readonly apiKey: string
  /** Where the gateway's sources are: this repository, or another revision of it. */
  readonly root: string
}

export function commonHeaders(bench: Bench): Record<string, string> {
  return { authorization: `Bearer ${bench.apiKey}`, 'content-type': 'application/json' }
}

const ASKED: Readonly<Record<Wire, (model: string, content: string, stream: boolean) => object>> = {
  'openai-responses': (model, input, stream) => ({ model, input, stream }),
  'openai-chat': (model, content, stream) => ({
    model,
    messages: [{ role: 'user', content }],
    stream,
    ...(stream ? { stream_options: { include_usage: true } } : {}),
  }),
  'anthropic-messages': (model, content, stream) => ({
    model,
    max_tokens: 1_024,
    messages: [{ role: 'user', content }],
    stream,
  }),
}

/** The body that asks for a plan in this format. */
export function bodyOf(wire: Wire, model: string, stream: boolean, promptBytes?: number): string {
  const sentence =
    'Say something about coffee and the quick brown fox, at the pace that the model name spells.'
  const content =
    promptBytes === undefined
      ? sentence
      : `${sentence} `.repeat(Math.ceil(promptBytes / sentence.length)).slice(0, promptBytes)
  return JSON.stringify(ASKED[wire](model, content, stream))
}
