/**
 * Charts over time: bars or lines, with gaps where nothing happened. The caption shows the values under the pointer, or
 * at the position chosen with the arrow keys. Colours are CSS variables.
 */
import UPlot from 'uplot/dist/uPlot.esm.js'
import { html, useEffect, useRef, useState } from './html.js'

const BAR_PATHS = { size: [0.85, 40] }

/**
 * `lines`: { name, colour, values }, from the bottom of a stack to its top; null is a gap. `times` are Unix seconds.
 * `step`: seconds between two times. `kind`: bars, stack or lines. `clock`: formats a time.
 */
export function Chart({
  name,
  times,
  lines,
  kind = 'bars',
  show,
  clock,
  step,
  max,
  height = 96,
  utc = false,
}) {
  const plotElement = useRef(null)
  const plot = useRef(null)
  const [pointed, setPointed] = useState(null)
  const drawnLines = kind === 'stack' ? stacked(lines) : lines
  const data = [times, ...drawnLines.map(({ values }) => values)]
  const latest = useRef(data)
  latest.current = data
  const form = JSON.stringify([
    kind,
    height,
    utc,
    step,
    max ?? null,
    lines.map(line => [line.name, line.colour]),
  ])

  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const build = () => {
      plot.current?.destroy()
      const options = optionsOf(
        { lines: drawnLines, kind, show, clock, step, max, height, utc },
        plotElement.current,
        setPointed,
      )
      plot.current = new UPlot(options, latest.current, plotElement.current)
    }
    const fit = new ResizeObserver(() => {
      if (plotElement.current !== null)
        plot.current?.setSize({ width: plotElement.current.clientWidth, height })
    })
    build()
    dark.addEventListener('change', build)
    fit.observe(plotElement.current)
    return () => {
      dark.removeEventListener('change', build)
      fit.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [form])

  useEffect(() => {
    plot.current?.setData(latest.current)
  })

  const move = event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (step === undefined) return
    event.preventDefault()
    const next = index === null ? times.length - 1 : Math.min(times.length - 1, Math.max(0, index + step))
    plot.current.setCursor({ left: plot.current.valToPos(times[next], 'x'), top: 0 })
  }
  const leave = () => plot.current?.setCursor({ left: -10, top: -10 })

  const index = pointed !== null && pointed < times.length ? pointed : null
  const namedLines = lines.map(line => ({
    ...line,
    value:
      index === null
        ? (line.now ?? line.values.findLast(value => value !== null) ?? null)
        : line.values[index],
  }))
  const captionLines =
    index === null ? namedLines : namedLines.filter(({ value }) => value !== null && value !== 0).toReversed()
  return html`
    <figure class="chart" aria-label=${name} tabindex="0" onKeyDown=${move} onBlur=${leave}>
      <figcaption aria-live=${index === null ? 'off' : 'polite'}>
        <b>${name}</b>${' '}
        ${index !== null && html`<time class="dim">${clock(times[index])}</time>`}
        ${captionLines.slice(0, 9).map(
          ({ name: lineName, colour, value }) => html`
            <span key=${lineName} class="value">
              <i class="swatch" style=${{ background: `var(${colour})` }}></i>
              ${(lines.length > 1 || kind === 'stack') && `${lineName} `}<b>${show(value)}</b>
            </span>
          `,
        )}
      </figcaption>
      <div ref=${plotElement} class="plot" aria-hidden="true"></div>
    </figure>
  `
}

/** Sums for a stack: the highest line comes first, because later lines are drawn over it. */
function stacked(lines) {
  const sums = []
  return lines
    .map(({ values, ...line }) => ({
      ...line,
      values: values.map((value, index) => {
        if (value === null) return sums[index] ?? null
        sums[index] = (sums[index] ?? 0) + value
        return sums[index]
      }),
    }))
    .toReversed()
}

function optionsOf({ lines, kind, show, clock, step, max, height, utc }, place, onPointed) {
  const style = getComputedStyle(place)
  const colour = name => style.getPropertyValue(name).trim()
  const axis = {
    stroke: colour('--dim'),
    font: '11px system-ui, sans-serif',
    grid: { stroke: colour('--edge'), width: 1 },
    ticks: { show: false },
  }
  const isBars = kind !== 'lines'
  return {
    width: Math.max(120, place.clientWidth),
    height,
    legend: { show: false },
    cursor: { points: { show: !isBars }, drag: { x: false, y: false }, y: false },
    hooks: { setCursor: [({ cursor }) => onPointed(cursor.idx ?? null)] },
    // Leaves space for the last label.
    padding: [8, 18, 0, 0],
    ...(utc ? { tzDate: seconds => UPlot.tzDate(new Date(seconds * 1e3), 'Etc/UTC') } : {}),
    scales: {
      x: { time: true, range: (_, first, last) => [first - step * 0.6, last + step * 0.6] },
      y: { range: (_, __, top) => [0, max ?? (top > 0 ? top * 1.1 : 1)] },
    },
    axes: [
      { ...axis, size: 20, gap: 2, space: 70, values: (_, ticks) => ticks.map(clock) },
      { ...axis, size: 56, gap: 3, space: 28, values: (_, ticks) => ticks.map(show) },
    ],
    series: [
      {},
      ...lines.map(({ name, colour: lineColour }) => ({
        label: name,
        stroke: colour(lineColour),
        spanGaps: false,
        ...(isBars
          ? {
              fill: colour(lineColour),
              width: 0,
              paths: UPlot.paths.bars(BAR_PATHS),
              points: { show: false },
            }
          : // A value between two gaps is drawn as a point.
            { width: 1.5, points: { show: true, size: 4, fill: colour(lineColour), width: 0 } }),
      })),
    ],
  }
}
