# actor.py (lines 470-500), what we run
    def _model_inputs(self, mb):
        kw = dict(input_ids=mb["tokens"], position_ids=mb["pos"], attention_mask=None)
        if mb.get("pixel_values") is not None:
            kw["pixel_values"] = mb["pixel_values"]
            kw["image_grid_thw"] = mb["image_grid_thw"]
        return kw

    def _forward(self, mb, i, n):
        log.info(f"step {self.step} mb {i}/{n} fwd start pixel_values={shape(mb)} ...")
        out = self.model(**self._model_inputs(mb))   # visual() only runs when pixel_values is given
        return out.logits
