/** A real Prometheus next to the gateway, for tests and for the picture of the dashboard. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { freePort } from '../support/free-port.ts'

const GRAFANA = join(import.meta.dirname, '../../grafana')

interface Sampled {
  readonly metric: Readonly<Record<string, string>>
  readonly value: readonly [seconds: number, value: string]
}

interface Traced {
  readonly metric: Readonly<Record<string, string>>
  readonly values: readonly (readonly [seconds: number, value: string])[]
}

export interface Prometheus {
  readonly url: string
  /** @throws Error when it does not understand the expression. */
  ask(expr: string): Promise<readonly Sampled[]>
  /** Times in Unix seconds. */
  askRange(
    expr: string,
    startSeconds: number,
    endSeconds: number,
    stepSeconds: number,
  ): Promise<readonly Traced[]>
  get(path: string): Promise<unknown>
}

function results<Result>(answer: unknown, expr: string): readonly Result[] {
  const { status, data } = answer as { status: string; data?: { result: readonly Result[] } }
  if (status !== 'success' || data === undefined) throw new Error(`${expr}: ${JSON.stringify(answer)}`)
  return data.result
}

/** Tools of Debian's package `prometheus` that this machine lacks. */
export function missingTools(): string[] {
  return ['promtool', 'prometheus'].filter(tool => spawnSync(tool, ['--version']).error !== undefined)
}

/**
 * Starts a Prometheus that scrapes this admin port, and kills it at the end.
 * @param rules path of its rules; by default those of the repository
 */
export async function startPrometheus(
  t: Pick<Test, 'teardown'>,
  adminUrl: string,
  scrapeMs: number,
  rules = join(GRAFANA, 'alerts.yaml'),
): Promise<Prometheus> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-prometheus-'))
  writeFileSync(
    join(folder, 'prometheus.yaml'),
    JSON.stringify({
      global: { scrape_interval: `${scrapeMs}ms`, evaluation_interval: '1s' },
      rule_files: [rules],
      scrape_configs: [{ job_name: 'sluice', static_configs: [{ targets: [new URL(adminUrl).host] }] }],
    }),
  )
  const port = await freePort()
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(folder, 'prometheus.yaml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
      '--enable-feature=exemplar-storage',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-10_000)
  })
  const closed = once(child, 'close')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await closed
    rmSync(folder, { recursive: true, force: true })
  })
  const url = `http://127.0.0.1:${port}`
  const get = async (path: string) => (await fetch(url + path)).json() as Promise<unknown>
  for (let tries = 0; ; tries++) {
    const ready = await fetch(`${url}/-/ready`).then(
      reply => reply.ok,
      () => false,
    )
    if (ready) break
    if (tries > 200 || child.exitCode !== null) throw new Error(`prometheus did not start: ${stderr}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  return {
    url,
    get,
    async ask(expr) {
      return results<Sampled>(await get(`/api/v1/query?query=${encodeURIComponent(expr)}`), expr)
    },
    async askRange(expr, startSeconds, endSeconds, stepSeconds) {
      const range = `start=${startSeconds}&end=${endSeconds}&step=${stepSeconds}`
      const answer = await get(`/api/v1/query_range?query=${encodeURIComponent(expr)}&${range}`)
      return results<Traced>(answer, expr)
    },
  }
}
