// A run, followed by events until it is over.
import { pause } from "./dom.js";
import { isOver } from "./progress.js";
import { gateway, patiently } from "./session.js";

/** Calls `draw` with every status; reconnects after every break. Returns the last status. */
export async function follow(status, draw, signal) {
  let current = status;
  const see = (next) => draw((current = next));
  const path = `/runs/${status.run}`;
  while (!signal.aborted && !isOver(current)) {
    try {
      for await (const next of gateway.events(`${path}/events`, signal)) see(next);
    } catch (error) {
      if (signal.aborted) break;
      if (!error.passes && error.status !== 401) throw error;
      await pause(1, signal);
    }
    if (!signal.aborted && !isOver(current)) see(await patiently(() => gateway.get(path, signal), signal));
  }
  return current;
}
