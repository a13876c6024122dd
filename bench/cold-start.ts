/**
 * Cold starts of the installed package: the time until it is ready, and until the first token of the first request. The
 * package is packed and installed as users install it; nothing is pinned, and the machine has no other load.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { usage } from './cpu.ts'
import { configuration, providerSlug } from './gateway.ts'
import { lineOf, start } from './processes.ts'
import type { Start, StartState } from './results.ts'
import { COLD_PLAN } from './scenarios.ts'
import { type Bench, bodyOf, commonHeaders } from './subjects.ts'
import { MARKERS, PATHS, planName } from './wire.ts'

const INSTALL_MS = 240_000
const START_MS = 60_000
const POLL_MS = 2
/** For what a thread gives back only after a quiet while. */
const QUIET_MS = 60_000
const WIRE = 'openai-responses'

/** Packs and installs this tree. Returns its launcher. @throws Error without the registry or a compiler */
function install(bench: Bench): string {
  const folder = join(bench.folder, 'installed')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'package.json'), '{"private":true}')
  const npm = (words: readonly string[], cwd: string): string =>
    execFileSync('npm', words, {
      cwd,
      encoding: 'utf8',
      timeout: INSTALL_MS,
      stdio: ['ignore', 'pipe', 'ignore'],
    })
  npm(['run', '--silent', 'build'], bench.root)
  const packed = npm(['pack', '--silent', '--ignore-scripts', '--pack-destination', folder], bench.root)
  const tarball = join(folder, packed.trim().split('\n').at(-1) ?? '')
  npm(['install', '--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts', tarball], folder)
  return join(folder, 'node_modules/sluice-gateway/bin/sluice.js')
}

/**
 * Starts it again and again: in an empty data folder, in the same one again, and where nothing can be kept.
 * @param onStart called after each start
 */
export async function coldStarts(
  bench: Bench,
  rounds: number,
  onStart: (start: Start) => void,
): Promise<void> {
  const launcher = install(bench)
  for (let round = 0; round < rounds; round++) {
    const folder = join(bench.folder, `start-${round}`)
    mkdirSync(folder, { mode: 0o700 })
    writeFileSync(join(folder, 'config.yaml'), JSON.stringify(configuration(bench)))
    const once = (state: StartState, quietMs = 0): Promise<Start> =>
      startOnce(bench, launcher, folder, { state, round, quietMs })
    onStart(await once('first'))
    onStart(await once('second', round === rounds - 1 ? QUIET_MS : 0))
    rmSync(join(folder, 'compile-cache'), { recursive: true, force: true })
    // A folder that cannot be made, also for root, whom no mode stops.
    writeFileSync(join(folder, 'compile-cache'), '')
    onStart(await once('read-only'))
  }
}

async function startOnce(
  bench: Bench,
  launcher: string,
  folder: string,
  { state, round, quietMs }: Pick<Start, 'state' | 'round'> & { readonly quietMs: number },
): Promise<Start> {
  const log = join(folder, 'errors.log')
  const fromMs = performance.now()
  const one = start(process.execPath, [launcher, 'start', '--config', join(folder, 'config.yaml')], {
    core: null,
    log,
    readLines: true,
    cwd: folder,
    environment: {
      NODE_ENV: 'production',
      NODE_EXTRA_CA_CERTS: bench.certificate,
      GATEWAY_API_KEY: bench.apiKey,
      DATABASE_URL: `sqlite:${join(folder, 'gateway.db')}`,
    },
  })
  try {
    const { url, adminUrl } = await lineOf(one, log, START_MS, line =>
      line.includes('"msg":"listening"') ? (JSON.parse(line) as { url: string; adminUrl: string }) : null,
    )
    await untilReady(adminUrl)
    const readyMs = performance.now() - fromMs
    await firstToken(bench, url)
    const tokenMs = performance.now() - fromMs
    await new Promise(resolve => setTimeout(resolve, quietMs))
    const idleRssBytes = quietMs === 0 ? null : usage([one.pid]).rssBytes
    return { state, round, readyMs, tokenMs, idleRssBytes }
  } finally {
    await one.stop()
  }
}

async function untilReady(adminUrl: string): Promise<void> {
  const untilMs = performance.now() + START_MS
  while (performance.now() < untilMs) {
    const reply = await fetch(`${adminUrl}/readyz`)
    await reply.arrayBuffer()
    if (reply.status === 200) return
    await new Promise(resolve => setTimeout(resolve, POLL_MS))
  }
  throw new Error('it listens and does not become ready')
}

/** Resolves with the first text of a stream. @throws Error when there is none */
async function firstToken(bench: Bench, url: string): Promise<void> {
  const body = bodyOf(WIRE, `${providerSlug(WIRE, false)}/${planName(COLD_PLAN)}`, true)
  const reply = await fetch(url + PATHS[WIRE], { method: 'POST', headers: commonHeaders(bench), body })
  let text = ''
  for await (const piece of reply.body ?? []) {
    text += Buffer.from(piece).toString('latin1')
    if (text.includes(MARKERS[WIRE])) return
  }
  throw new Error(`no token: ${reply.status} ${text.slice(0, 200)}`)
}
