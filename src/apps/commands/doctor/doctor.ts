/** `sluice doctor`: writes the information that support needs to one file. It changes nothing and opens no database. */
import { readFileSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { availableParallelism, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { isoInstant, systemClock } from '../../../base/clock.ts'
import { systemCode } from '../../../base/errors.ts'
import { findConfig, processEnvironment } from '../../../process/config/config.ts'
import { withoutSecrets } from '../../../process/config/without-secrets.ts'
import { dataFolder, sqlitePath, storageLocation } from '../../../storage/data-folder.ts'
import { CONFIG_OPTION, type Command } from '../command.ts'
import { configWords, print, writePrivateFile } from '../outcome.ts'
import { version } from '../version.ts'

const ANSWER_TIMEOUT_MS = 3_000
const LOG_TAIL_BYTES = 1024 * 1024
const MAX_ERRORS = 50
const COPIED_METRICS =
  /^(?:gateway_(?:build_info|front|threads|degraded|storage_|usage_spool|usage_records_waiting|event_loop_lag)|process_).*$/gm

export const doctor: Command = {
  name: 'doctor',
  does: 'write versions, settings without secrets, ports, latencies and last errors to one file, for support',
  options: {
    config: CONFIG_OPTION,
    log: { value: 'FILE', does: 'a log file of the gateway, whose last errors are copied' },
    out: { value: 'FILE', does: 'file to write; default: sluice-doctor-TIME.json in this folder' },
  },
  async run({ config: file, log, out }) {
    const created = isoInstant(systemClock.nowMs())
    const { config, faults } = findConfig(configWords(file), processEnvironment())
    const report = {
      created,
      versions: { sluice: version(), node: process.version, modules: process.versions.modules },
      machine: {
        platform: `${process.platform} ${process.arch} ${release()}`,
        cores: availableParallelism(),
        memoryBytes: totalmem(),
      },
      faults: faults.lines,
      ...(config === null
        ? {}
        : {
            settings: withoutSecrets(config),
            storage: await storageOf(config.storage.url),
            redis: config.redis.url === null ? 'none' : await reach(storageLocation(config.redis.url)),
            ports: {
              public: await reach(`${config.listen.host}:${config.listen.port}`),
              admin: await reach(`${config.admin.host}:${config.admin.port}`),
            },
            gateway: await gatewayAt(`http://${config.admin.host}:${config.admin.port}`),
          }),
      lastErrors: typeof log === 'string' ? errorsIn(log) : 'none: name a log file with --log FILE',
    }
    const name = typeof out === 'string' ? out : `sluice-doctor-${created.replaceAll(':', '-')}.json`
    writePrivateFile(name, `${JSON.stringify(report, null, 2)}\n`)
    print(`wrote ${name}; read it before you pass it on`)
    return 0
  },
}

async function storageOf(url: string) {
  const path = sqlitePath(url)
  if (path === null) return { kind: 'postgres', ...(await reach(storageLocation(url))) }
  const folder = dataFolder(url)
  try {
    const { size, mode, uid } = statSync(path)
    return {
      kind: 'sqlite',
      path,
      bytes: size,
      mode: (mode & 0o777).toString(8),
      owner: uid,
      spool: join(folder, 'spool'),
    }
  } catch (error) {
    return { kind: 'sqlite', path, fault: systemCode(error) }
  }
}

/** The time that it took to connect, or the reason why that failed. */
async function reach(place: string) {
  const [, host = '', port = ''] = /^\[?(.*?)\]?:(\d+)(?:\/.*)?$/.exec(place) ?? []
  const sinceMs = performance.now()
  return await new Promise<object>(resolve => {
    const socket = connect({ host, port: Number(port) })
    const finish = (result: object): void => {
      socket.destroy()
      resolve({ place, ...result })
    }
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => finish({ fault: 'no answer' }))
    socket.once('connect', () => finish({ connectMs: Math.round((performance.now() - sinceMs) * 10) / 10 }))
    socket.once('error', error => finish({ fault: systemCode(error) }))
  })
}

/** The report of a running gateway about itself. */
async function gatewayAt(url: string) {
  try {
    const request = async (path: string) =>
      await fetch(url + path, { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) })
    const ready: unknown = await (await request('/readyz')).json()
    return { ready, metrics: (await (await request('/metrics')).text()).match(COPIED_METRICS) ?? [] }
  } catch {
    return 'does not answer'
  }
}

/** Lines of level `error`, which contain only allowed fields. */
function errorsIn(path: string): readonly string[] | string {
  try {
    const lines = readFileSync(path).subarray(-LOG_TAIL_BYTES).toString('utf8').split('\n')
    return lines.filter(line => line.includes('"level":"error"')).slice(-MAX_ERRORS)
  } catch (error) {
    return `cannot be read (${systemCode(error) ?? 'unknown'})`
  }
}
