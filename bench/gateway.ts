/**
 * The gateway itself as a subject: the real process of a source tree, set up as in production: its own configuration,
 * one serve thread, key checks, usage records, and log lines in a file.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { family, scriptThreads } from './cpu.ts'
import { lineOf, start } from './processes.ts'
import type { Scenario, SubjectName } from './scenarios.ts'
import { type Bench, commonHeaders, type Guarded, type Subject } from './subjects.ts'
import { PATHS, type Wire } from './wire.ts'

const START_MS = 60_000
const MANAGEMENT_KEY = 'sk-gw-mgmt-2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6'
const SECOND = '-second'
const PRICING = { prompt: '0.0000005', completion: '0.0000015' }

/** Own providers: one per format and transport of the upstream, each with a model for every plan. */
export function configuration(
  bench: Bench,
  { limits, transport, front, http2, tracing, continues, cache }: Extras = {},
): object {
  const providers = (Object.keys(PATHS) as Wire[]).flatMap(format =>
    ([false, true] as const).map(tls => ({
      slug: providerSlug(format, tls),
      name: `Bench ${format}${tls ? ' over TLS' : ''}`,
      format,
      baseUrl:
        tls || http2 === true
          ? `https://127.0.0.1:${http2 === true ? bench.upstream.http2 : bench.upstream.tls}/v1`
          : `http://127.0.0.1:${bench.upstream.plain}/v1`,
      apiKey: 'bench-provider-key',
      ...(http2 === true ? { http2 } : {}),
      ...(transport === undefined ? {} : { transport }),
    })),
  )
  const models = providers.flatMap(({ slug }) =>
    bench.plans.map(plan => {
      const endpoint = { provider: slug, upstreamModel: plan, pricing: PRICING }
      const others = continues === true ? [{ ...endpoint, provider: `${slug}${SECOND}` }] : []
      return {
        id: `${slug}/${plan}`,
        contextLength: 128_000,
        maxOutputTokens: 16_384,
        endpoints: [endpoint, ...others],
      }
    }),
  )
  return {
    listen: { host: '127.0.0.1', port: 0, ...(front === undefined ? {} : { front }) },
    admin: { host: '127.0.0.1', port: 0 },
    threads: { serve: 1, tasks: 1 },
    ...(limits === undefined ? {} : { limits }),
    ...(tracing === undefined ? {} : { tracing }),
    ...(cache === undefined ? {} : { cache }),
    ...(continues === true ? { continueStreams: true, providers: providers.flatMap(twice) } : { providers }),
    models,
  }
}

/** A provider, and the same one under another name. Either continues what the other has begun. */
function twice<T extends { readonly slug: string }>(row: T): readonly T[] {
  const one = { ...row, continues: 'last-message' }
  return [one, { ...one, slug: `${row.slug}${SECOND}` }]
}

export function providerSlug(wire: Wire, tls: boolean): string {
  return `bench-${wire.slice(wire.indexOf('-') + 1)}${tls ? '-tls' : ''}`
}

interface Extras {
  /** Asks the running gateway for what it needs before it is measured. */
  readonly prepare?: (url: string, managementKey: string) => Promise<void>
  /** The same, for the key of those requests that its task workers are to look at. */
  readonly guardedKey?: (url: string, managementKey: string) => Promise<string>
  /** Notes how late the event loop of its serve thread is. */
  readonly watchLag?: boolean
  /** A module that each of its threads loads first; not together with `watchLag`. */
  readonly preload?: URL
  /** By which it asks the upstream. Default: directly. */
  readonly transport?: 'undici'
  /** It asks the upstream over HTTP/2, and so under TLS. */
  readonly http2?: true
  /** By which it serves. Default: the faster one. */
  readonly front?: 'node'
  /** `limits` of its configuration. Default: its own. */
  readonly limits?: object
  /** `tracing` of its configuration. Default: it has none. */
  readonly tracing?: object
  /** Each model has two endpoints, and a stream that breaks at one goes on at the other. */
  readonly continues?: true
  /** `cache` of its configuration. Default: its own, which is off. */
  readonly cache?: object
  /** It sends itself no requests after its start, which would be counted with ours. */
  readonly isCold?: true
}

/** @param version what the report calls this source tree */
export async function startGateway(
  bench: Bench,
  name: SubjectName,
  version: string,
  extras: Extras = {},
): Promise<Subject> {
  const folder = join(bench.folder, name)
  mkdirSync(folder, { recursive: true })
  const config = join(folder, 'config.yaml')
  // JSON is YAML.
  writeFileSync(config, JSON.stringify(configuration(bench, extras)))
  const log = join(folder, 'errors.log')
  const out = join(folder, 'gateway.log')
  writeFileSync(out, '')
  const entry = join(bench.root, 'bin/sluice.js')
  const lagFile = join(folder, 'lag')
  const preload = extras.watchLag === true ? watcher(lagFile) : extras.preload
  // Standard output is the log. It goes to a file through the shell, so that nobody has to carry it.
  const script = `exec "$@" >>"${out}"`
  const words = ['-c', script, 'sh', process.execPath, entry, 'start']
  const one = start('sh', [...words, '--config', config], {
    core: bench.proxyCore,
    log,
    readLines: false,
    cwd: folder,
    environment: {
      NODE_ENV: 'production',
      // The upstream's certificate is made for this run alone.
      NODE_EXTRA_CA_CERTS: bench.certificate,
      GATEWAY_API_KEY: bench.apiKey,
      GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY,
      DATABASE_URL: `sqlite:${join(folder, 'gateway.db')}`,
      ...(extras.isCold === true ? { GATEWAY_WARM_UP_MS: '0' } : {}),
      ...(preload === undefined ? {} : { NODE_OPTIONS: `--import=${preload.href}` }),
    },
  })
  const port = await listening(out, one, log)
  const url = `http://127.0.0.1:${port}/v1`
  await extras.prepare?.(url, MANAGEMENT_KEY)
  const guardedKey = await extras.guardedKey?.(url, MANAGEMENT_KEY)
  const pids = family(one.pid)
  return {
    name,
    version,
    pids: () => pids,
    target: scenario => ({
      port,
      path: PATHS[doorOf(scenario)],
      headers: commonHeaders(bench),
      wire: doorOf(scenario),
      modelPrefix: `${providerSlug(scenario.wire, scenario.tls)}/`,
    }),
    ...(extras.watchLag === true ? { lagFile } : {}),
    ...(guardedKey === undefined ? {} : { guarded: guardedOf(one.pid, guardedKey) }),
    stop: () => one.stop(),
  }
}

/** Its clients speak Responses, whatever the upstream speaks, but where a scenario says otherwise. */
function doorOf({ native, wire }: Scenario): Wire {
  return native === true ? wire : 'openai-responses'
}

/** Task workers start with their first task: until then the process has none. */
function guardedOf(pid: number, apiKey: string): Guarded {
  const before = new Set(scriptThreads(pid))
  return {
    headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
    threads: () =>
      scriptThreads(pid)
        .filter(tid => !before.has(tid))
        .map(tid => ({ pid, tid })),
  }
}

function watcher(file: string): URL {
  const url = pathToFileURL(join(import.meta.dirname, 'lag.ts'))
  url.searchParams.set('file', file)
  return url
}

/** The port of the `listening` line. @throws Error when the process ends or stays silent */
async function listening(out: string, one: ReturnType<typeof start>, log: string): Promise<number> {
  const follow = start('tail', ['-n', '+1', '-f', `--pid=${one.pid}`, out], {
    core: null,
    log,
    readLines: true,
  })
  try {
    return await lineOf(follow, log, START_MS, line => {
      if (!line.includes('"msg":"listening"')) return null
      const { url } = JSON.parse(line) as { url: string }
      return Number(new URL(url).port)
    })
  } finally {
    await follow.stop()
  }
}
