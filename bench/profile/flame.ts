/** Draws a call tree as a flame graph: one SVG for a browser, with names and shares under the pointer. Pure. */
import type { CallNode } from './profile.ts'

const WIDTH = 1600
const ROW = 17
/** Thinner boxes cannot be seen. */
const WIDTH_MIN = 0.4
const LETTER = 6.2
const HEAD = 40

/** @param unit of the samples: what follows a figure under the pointer; `per`: samples per shown figure */
export function flameGraph(tree: CallNode, title: string, unit: string, per: number): string {
  const shown = { ...tree, children: tree.children.filter(({ name }) => name !== '(idle)') }
  const total = shown.children.reduce((sum, { total: one }) => sum + one, shown.own)
  const boxes: string[] = []
  let depth = 0
  const draw = (node: CallNode, x: number, level: number): void => {
    const width = (node.total / total) * WIDTH
    if (width < WIDTH_MIN) return
    depth = Math.max(depth, level)
    const label = `${node.name} · ${(node.total / per).toFixed(2)} ${unit} (itself ${(node.own / per).toFixed(2)}) · ${((node.total / total) * 100).toFixed(1)} % · ${node.stage}`
    const letters = Math.floor((width - 6) / LETTER)
    const text =
      letters < 3
        ? ''
        : `<text x="${(x + 3).toFixed(1)}" y="${HEAD + level * ROW + 12}">${escaped(node.name.slice(0, letters))}</text>`
    boxes.push(
      `<g><title>${escaped(label)}</title><rect x="${x.toFixed(1)}" y="${HEAD + level * ROW}" width="${width.toFixed(1)}" height="${ROW - 1}" fill="${colour(node.stage)}"/>${text}</g>`,
    )
    let at = x
    for (const child of node.children.toSorted((a, b) => b.total - a.total)) {
      draw(child, at, level + 1)
      at += (child.total / total) * WIDTH
    }
  }
  let x = 0
  for (const child of shown.children.toSorted((a, b) => b.total - a.total)) {
    draw(child, x, 0)
    x += (child.total / total) * WIDTH
  }
  const height = HEAD + (depth + 1) * ROW + 8
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="ui-monospace, monospace" font-size="11">
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="24" font-size="15">${escaped(title)}: ${(total / per).toFixed(1)} ${unit}</text>
${boxes.join('\n')}
</svg>
`
}

/** The same stage has the same colour in every graph. */
function colour(stage: string): string {
  let hash = 0
  for (const letter of stage) hash = (hash * 31 + letter.charCodeAt(0)) % 360
  return `hsl(${hash} 65% 78%)`
}

function escaped(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}
