/** What `sluice check` does to each of many files, in one process: prints what is wrong with it. Arguments: files. */
import { ConfigError, loadConfig } from '../../src/config/config.ts'
import { buildCatalog } from '../../src/threads/build-catalog.ts'
import { startFailure } from '../../src/threads/start-failure.ts'

for (const file of process.argv.slice(2)) {
  try {
    buildCatalog(loadConfig(['--config', file], {}), null)
    process.stdout.write(`${file} is good\n`)
  } catch (error) {
    const line = error instanceof ConfigError ? error.message : startFailure(error)?.line
    if (line === undefined) throw error
    process.stdout.write(`${line}\n`)
  }
}
