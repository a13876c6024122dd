/**
 * The contract of sandbox engines: where a model's code runs, and where the files of a container are stored. An engine
 * must not trust anything that a run returns. Types only.
 */

/** Code from a model. */
export interface Code {
  readonly language: 'shell' | 'python'
  readonly text: string
}

export interface EngineRun {
  /** They run one after the other; after one was stopped, no further one starts. */
  readonly codes: readonly Code[]
  /** Time limit for all of them together. */
  readonly timeoutMs: number
  /** For each of them: maximum bytes of stdout and stderr together. */
  readonly outputBytes: number
}

/** The result of one piece of code. */
export interface RunOutput {
  readonly stdout: string
  readonly stderr: string
  /** Null: it was stopped. */
  readonly exitCode: number | null
  readonly timedOut: boolean
}

/** A limit that ended a run as a whole; `failed`: the engine itself failed. */
export type LimitStop = 'time' | 'cpu' | 'memory' | 'output' | 'files' | 'failed'

export interface EngineResult {
  /** One for each piece of code that has started. */
  readonly outputs: readonly RunOutput[]
  /** The reason why the run was ended from outside; null: it ended on its own. */
  readonly stopped: LimitStop | null
  /** Null: nothing was lost. `changes`: changes of this run to the files; `files`: all files. */
  readonly lost: 'changes' | 'files' | null
}

/** A regular file of a container. */
export interface ContainerFile {
  /** Relative to the folder of the container's files, without `.` and `..`, for example `out/plot.png`. */
  readonly path: string
  readonly bytes: number
  readonly changedMs: number
}

/** The files of one container and a way to run code on them. Call it once at a time. */
export interface EngineContainer {
  /** Only rejects with the reason of the signal. */
  run(run: EngineRun, signal: AbortSignal): Promise<EngineResult>
  list(): Promise<readonly ContainerFile[]>
  /** Null: there is no regular file at this path. */
  read(path: string): Promise<Uint8Array | null>
  /** Returns false if there is no space for the file. */
  write(path: string, content: Uint8Array): Promise<boolean>
  /** Total size of its files. */
  bytes(): number
  /** Deletes the files. */
  end(): Promise<void>
}

export interface SandboxEngine {
  /** The engine's name in the settings. */
  readonly name: string
  /** True if its code can be given exactly the domains of an allow-list. Known once `refusal` has resolved. */
  readonly holdsDomains: boolean
  /** Null: the engine works here. Otherwise the reason for a client why it does not. Called once. */
  refusal(): Promise<string | null>
  /**
   * `id` is unique, and safe as a folder name. `allowedDomains`: null if the code has no network, and always if the
   * engine does not support allow-lists.
   */
  create(id: string, allowedDomains: readonly string[] | null): Promise<EngineContainer>
  /** Deletes the files of all containers. */
  close(): Promise<void>
}

/** Limits for every run and every container. */
export interface EngineLimits {
  readonly cpuSeconds: number
  readonly memoryBytes: number
  /** Limit for all files of one container. */
  readonly fileBytes: number
  readonly files: number
}

/** The folder of a container's files, as seen by its code. */
export const DATA_FOLDER = '/mnt/data'
