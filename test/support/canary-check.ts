/** Runs `sluice check` on many files in one process, and prints one line per file with its fault. */
import { loadConfig } from '../../src/process/config/config.ts'
import { startFailure } from '../../src/process/start/start-failure.ts'
import { buildCatalog } from '../../src/process/wiring/catalog.ts'

for (const file of process.argv.slice(2)) {
  try {
    buildCatalog(loadConfig(['--config', file], {}), null)
    process.stdout.write(`${file} is good\n`)
  } catch (error) {
    const failure = startFailure(error)
    if (failure === null) throw error
    process.stdout.write(`${failure.lines.join(' | ')}\n`)
  }
}
