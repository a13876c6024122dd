/**
 * The product in a folder that outlives it: it is started, killed and restarted, and every byte that it writes is kept.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { codeOf } from '../../src/storage/store-error.ts'
import { freePort } from './free-port.ts'
import { CLI, MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './product.ts'

const CHECK = join(import.meta.dirname, 'canary-check.ts')
const FAULTS = join(import.meta.dirname, 'canary-faults.ts')

const ENTRIES = { main: MAIN, cli: CLI, check: CHECK } as const

interface Finished {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunningGateway {
  readonly url: string
  readonly port: number
  readonly adminUrl: string
  /** Sends the signal; the exit code. */
  end(signal: NodeJS.Signals): Promise<number | null>
}

export class CanaryProcess {
  readonly folder: string
  readonly #environment: Readonly<Record<string, string>>
  /** All that its processes wrote, by what was started. */
  readonly output: { readonly where: string; readonly text: () => string }[] = []
  readonly #children = new Set<ChildProcess>()

  constructor(folder: string, environment: Readonly<Record<string, string>>) {
    this.folder = folder
    this.#environment = environment
  }

  /** Starts the gateway with the configuration file of this name in its folder. */
  async start(config: string): Promise<RunningGateway> {
    const { child, stdout, stderr } = this.#spawn('gateway', MAIN, ['--config', config], {
      // One that the system does not give to somebody else while its only thread is restarted.
      GATEWAY_PORT: String(await freePort()),
      NODE_OPTIONS: `--import=${FAULTS}`,
    })
    const closed = once(child, 'close') as Promise<[number | null]>
    const line = () => /^.*"msg":"listening".*(?=\n)/m.exec(stdout())?.[0]
    while (line() === undefined) {
      if (child.exitCode !== null) throw new Error(`the gateway did not start: ${stderr()}`)
      await Promise.race([once(child.stdout, 'data'), closed])
    }
    const { url, adminUrl } = JSON.parse(line() ?? '') as { url: string; adminUrl: string }
    return {
      url,
      adminUrl,
      port: Number(new URL(url).port),
      async end(signal) {
        child.kill(signal)
        const [code] = await closed
        return code
      },
    }
  }

  /** Runs the gateway, the command line, or the check of many files, to its end. */
  async run(
    entry: 'main' | 'cli' | 'check',
    words: readonly string[],
    environment: Readonly<Record<string, string>> = {},
  ): Promise<Finished> {
    const name = `${entry} ${words.join(' ')}`
    const { child, stdout, stderr } = this.#spawn(name, ENTRIES[entry], words, environment)
    const [code] = (await once(child, 'close')) as [number | null]
    return { code, stdout: stdout(), stderr: stderr() }
  }

  /** Every file below the folder. */
  files(): readonly string[] {
    return readdirSync(this.folder, { recursive: true, encoding: 'utf8' })
      .filter(name => statSync(join(this.folder, name), { throwIfNoEntry: false })?.isFile() === true)
      .sort()
  }

  read(name: string): Buffer {
    return readFileSync(join(this.folder, name))
  }

  /** Every file below a folder. One that a running gateway has removed meanwhile is left out. */
  *contents(folder: string): Generator<readonly [name: string, content: Buffer]> {
    for (const name of this.files()) {
      if (!name.startsWith(folder)) continue
      let content: Buffer
      try {
        content = this.read(name)
      } catch (error) {
        if (codeOf(error) === 'ENOENT') continue
        throw error
      }
      yield [name, content]
    }
  }

  /** Ends what still runs. */
  async close(): Promise<void> {
    for (const child of this.#children) {
      const closed = once(child, 'close')
      child.kill('SIGKILL')
      await closed
    }
  }

  #spawn(where: string, entry: string, words: readonly string[], environment: Record<string, string>) {
    const child = spawn(process.execPath, [...PRODUCT_FLAGS, entry, ...words], {
      cwd: this.folder,
      env: {
        ...PRODUCT_ENVIRONMENT,
        GATEWAY_PORT: '0',
        GATEWAY_ADMIN_PORT: '0',
        GATEWAY_SERVE_THREADS: '1',
        LOG_LEVEL: 'trace',
        ...this.#environment,
        ...environment,
      },
    })
    this.#children.add(child)
    child.on('close', () => this.#children.delete(child))
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    this.output.push({ where: `stdout of ${where}`, text: () => stdout })
    this.output.push({ where: `stderr of ${where}`, text: () => stderr })
    return { child, stdout: () => stdout, stderr: () => stderr }
  }
}
